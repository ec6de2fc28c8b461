"""What vLLM does with each module of an adapter under a launch: applied, dropped or misapplied.

Names and shapes decide, not numbers. The trap: a name that vLLM accepts need not lead anywhere,
and a factor that is too small is written into the corner of its place; both without a message.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from inkling_cli.checks.effect import Effect, Fate, module_name
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.causes import Cause
from inkling_cli.checks.launch.vllm.layers import HEAD, adaptable_modules
from inkling_cli.checks.launch.vllm.loader import read_factors, refusals
from inkling_cli.checks.launch.vllm.loader_names import is_base_copy, parse_factor_name
from inkling_cli.checks.launch.vllm.places import Place, leads_somewhere, place_of
from inkling_cli.checks.launch.vllm.refusal import Factors, Shape
from inkling_cli.checks.launch.vllm.wrapping import (
    SHARED_FLAG,
    TARGETS,
    is_wrapped,
    passes_targets,
    server_targets,
)
from inkling_runtime.adapter.dialects.vllm import VLLM
from inkling_runtime.adapter.layouts import Layout
from inkling_runtime.adapter.lora_config import beyond_plain_lora
from inkling_runtime.adapter.module_problems import FACTOR_DTYPES

_Found = tuple[Fate, Cause, str]
_SHARED_EXPERTS = ".mlp.shared_experts."
_STACK = ".mlp.experts.w"
_RAW_NAME = ".w13_dn"


@lru_cache(maxsize=16)
def vllm_effects(subject: LaunchSubject, facts: AdapterFacts) -> tuple[Effect, ...]:
    """Return the effect of every module of an adapter, and of tensors that belong to none."""
    tensors = {module_name(name): name for name in facts.adapter.file.tensors}
    if not subject.lora_enabled:
        why = (Fate.DROPPED, Cause.LORA_OFF, "the server takes no adapters without `--enable-lora`")
        return tuple(Effect(name, *why) for name in tensors)
    if not subject.is_inkling:
        why = (Fate.NOT_CHECKED, Cause.NO_MODEL, "the base model is not an Inkling")
        return tuple(Effect(name, *why) for name in tensors)
    judge = _Judge(subject, facts)
    return tuple(judge.effect(name, tensor) for name, tensor in tensors.items())


@dataclass(frozen=True, slots=True)
class _Module:
    """A module on disk: its name, the path that it has in vLLM, and what the loader has there."""

    name: str
    path: str
    factors: Factors


class _Judge:
    """Judges the modules of one adapter one by one."""

    def __init__(self, subject: LaunchSubject, facts: AdapterFacts) -> None:
        self.subject = subject
        self.facts = facts
        self.known = adaptable_modules(subject.model.spec) if subject.model.spec else None
        self.factors = read_factors(facts)
        self.refused = {r.name: r.message or r.reason.value for r in refusals(subject, facts)}
        self.understood = {module.name: module for module in facts.adapter.modules}
        self.settings = beyond_plain_lora(facts.config)
        self.unsound = {problem.module for problem in facts.adapter.problems}
        self.sites = subject.model.spec.sites() if subject.model.spec else {}

    def effect(self, name: str, tensor: str) -> Effect:
        if is_base_copy(tensor):
            reason = "a copy of base weights, which vLLM passes over"
            return Effect(name, Fate.DROPPED, Cause.BASE_COPY, reason, is_meant=False)
        factor = parse_factor_name(tensor)
        if factor is None or tensor in self.refused:
            return Effect(name, Fate.REFUSED, Cause.REFUSED, "vLLM does not take the name")
        module = _Module(name, factor.module, self.factors[factor.module])
        place = place_of(module.path, self.known) if self.known else None
        found = self._nowhere(module, place) or self._not_wrapped(module, place)
        if found is None and place is None:
            found = (Fate.NOT_CHECKED, Cause.NO_MODEL, "the base model's sizes are not known")
        elif found is None and place is not None:
            found = next(self._faults(module, place), None)
        return Effect(name, *found) if found else Effect(name, Fate.APPLIED)

    def _nowhere(self, module: _Module, place: Place | None) -> _Found | None:
        path = module.path
        is_alone = path.endswith(".base_layer") and path.removesuffix(".base_layer") not in (
            self.factors
        )
        if place is not None and not is_alone:
            return None
        if self.known is None and leads_somewhere(path) and not is_alone:
            return None
        is_rooted = path.startswith("model.layers.") or path == HEAD
        if is_rooted and _SHARED_EXPERTS in path:
            reason = "vLLM looks for `sink_experts`, the name says `shared_experts`"
            return Fate.DROPPED, Cause.SHARED_NAME, reason
        if is_rooted and self._is_surplus(module.name):
            return Fate.DROPPED, Cause.NOT_IN_MODEL, f"the base model has no `{path}`"
        return Fate.DROPPED, Cause.NOWHERE, f"vLLM has no `{path}`"

    def _is_surplus(self, name: str) -> bool:
        """Whether a module is sound, and for a place that the base model does not have."""
        understood = self.understood.get(name)
        if understood is None or name in self.unsound or not self.sites:
            return False
        return not any(site in self.sites for site in understood.sites)

    def _not_wrapped(self, module: _Module, place: Place | None) -> _Found | None:
        if any(map(is_unknown, self.subject.launch.values(TARGETS))):
            return Fate.NOT_CHECKED, Cause.TARGETS_UNKNOWN, f"the value of `{TARGETS}` is not known"
        if place is None or is_wrapped(place.owner, self.subject):
            targets = server_targets(self.subject) or ()
            if module.path == HEAD and place is not None and "logits_processor" in targets:
                reason = f"`{TARGETS}` names `logits_processor` beside it"
                return Fate.DROPPED, Cause.BESIDE_LOGITS, reason
            return None
        if not passes_targets(place.owner, self.subject):
            return Fate.DROPPED, Cause.LEFT_OUT, f"`{TARGETS}` leaves it out"
        reason = "vLLM does not adapt q, k, v and r with `--fully-sharded-loras`"
        return Fate.DROPPED, Cause.SHARDED, reason

    def _faults(self, module: _Module, place: Place) -> Iterator[_Found]:
        """Yield what is wrong with a module that is wrapped, the worst first."""
        for name in (module.factors.name, place.owner):
            if name in self.refused:
                yield Fate.REFUSED, Cause.REFUSED, self.refused[name]
        yield from self._replaced(module)
        a, b = module.factors.a, module.factors.b
        if a is None or b is None:
            yield Fate.MISAPPLIED, Cause.NO_A, "without lora_A its delta is zero"
            return
        if 0 in a + b:
            fate = Fate.DROPPED if 0 in a and 0 in b else Fate.MISAPPLIED
            yield fate, Cause.EMPTY, "a factor of it is empty"
            return
        if min(len(a), len(b)) < 2:
            reason = f"A is {list(a)} and B {list(b)}, vLLM takes matrices"
            yield Fate.REFUSED, Cause.REFUSED, reason
            return
        yield from self._smaller(module, a, b, place)
        yield from self._wrong_rank(module, a, b, place)
        yield from self._cut(module, a, b)
        yield from self._beyond_shapes(module)

    def _replaced(self, module: _Module) -> Iterator[_Found]:
        factors = module.factors
        kept = [module_name(t) for t in (factors.a_tensor, factors.b_tensor) if t]
        first = factors.first
        if module.name not in kept:
            reason = f"vLLM keeps `{kept[-1]}`, another name of the same module"
            yield Fate.DROPPED, Cause.REPLACED, reason
        elif len(set(kept)) > 1:
            reason = f"vLLM takes lora_A of `{kept[0]}` and lora_B of `{kept[-1]}`"
            yield Fate.MISAPPLIED, Cause.MIXED, reason
        elif first != module.name and self._scaling(first) != self._scaling(module.name):
            reason = f"vLLM scales it like `{first}`, another name of the same module"
            yield Fate.MISAPPLIED, Cause.MIXED, reason

    def _smaller(self, module: _Module, a: Shape, b: Shape, place: Place) -> Iterator[_Found]:
        rows = {place.outputs}
        if module.path == HEAD and self.subject.model.spec:
            rows.add(self.subject.model.spec.unpadded_vocab_size)
        sides = (("lora_A", "columns", a[-1], {place.inputs}), ("lora_B", "rows", b[-2], rows))
        for factor, axis, found, expected in sides:
            if found not in expected:
                reason = f"{factor} has {found} {axis}, vLLM has room for {max(expected)}"
                yield Fate.MISAPPLIED, Cause.SMALLER, f"{reason}: the others stay zero"

    def _wrong_rank(self, module: _Module, a: Shape, b: Shape, place: Place) -> Iterator[_Found]:
        expected = self._rank(module.name)
        ranks = a[-2] // place.packed, b[-1] // place.packed
        if ranks != (expected, expected):
            shapes = f"A is {list(a)} and B {list(b)}"
            reason = f"{shapes}, vLLM scales by the rank {expected} of the config"
            yield Fate.MISAPPLIED, Cause.RANK, reason

    def _cut(self, module: _Module, a: Shape, b: Shape) -> Iterator[_Found]:
        is_packed = module.path.endswith((".mlp.experts", ".mlp.experts.base_layer"))
        outer = b if module.path.endswith(".w2") else a
        is_cut = len(outer) == 3 and outer[0] > 1 and _STACK in module.path
        if self.subject.launch.is_on(SHARED_FLAG) and (is_packed or is_cut):
            reason = f"with `{SHARED_FLAG}` vLLM keeps the first expert's outer factor for all"
            yield Fate.MISAPPLIED, Cause.CUT, reason

    def _beyond_shapes(self, module: _Module) -> Iterator[_Found]:
        tensors = self.facts.adapter.file.tensors
        for name in (module.factors.a_tensor, module.factors.b_tensor):
            if tensors[name].dtype not in FACTOR_DTYPES:
                reason = f"`{name}` is {tensors[name].dtype}, vLLM takes its numbers as they are"
                yield Fate.MISAPPLIED, Cause.NO_FLOATS, reason
        if self.settings:
            reason = f"the config has `{self.settings[0]}`, which vLLM passes over"
            yield Fate.MISAPPLIED, Cause.SETTING, reason
        if self._has_halves(module):
            reason = "vLLM reads lora_B rows as g0, u0, g1, u1, …, on disk they are [gate; up]"
            yield Fate.MISAPPLIED, Cause.ROWS, reason

    def _has_halves(self, module: _Module) -> bool:
        """Whether lora_B holds gate and up one after the other, as the adapter's dialect has them.

        The raw checkpoint's name says that its rows alternate, as those of the base weights do.
        """
        understood = self.understood.get(module.name)
        if understood is not None:
            return understood.parsed.row.layout is Layout.GATE_UP
        is_fused = module.path.endswith(".gate_up_proj") and not module.name.endswith(_RAW_NAME)
        return is_fused and self.facts.adapter.dialect is not VLLM

    def _rank(self, name: str) -> int:
        understood = self.understood.get(name)
        return understood.rank if understood else self.facts.config.rank_of(name)

    def _scaling(self, name: str) -> float:
        understood = self.understood.get(name)
        return understood.scaling if understood else self.facts.config.scaling_of(name)
