"""What SGLang does with each module of an adapter under a launch: applied, dropped, misapplied.

Names and shapes decide, not numbers. Judged are adapters that SGLang accepts; of others only the
refusal counts. A tensor of which nothing reaches a slot that a module reads is lost; a module of
which all tensors are lost is dropped, and one of which some are is misapplied.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from inkling_cli.checks.effect import Effect, Fate, factor_of, module_name
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.sglang.causes import Cause, Found
from inkling_cli.checks.launch.sglang.head_fit import is_kept, module_of
from inkling_cli.checks.launch.sglang.layouts import is_shared_outer_server
from inkling_cli.checks.launch.sglang.loading import Landing, landing_of
from inkling_cli.checks.launch.sglang.merged_factors import layer_of
from inkling_cli.checks.launch.sglang.pool import declared_targets, pool_targets
from inkling_cli.checks.launch.sglang.scaling import wrong_scale
from inkling_cli.checks.launch.sglang.slots import SHARED, ServerSlots, Slot
from inkling_cli.checks.launch.sglang.weights import file_of, stored_tensors
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.sglang_targets import HALVES
from inkling_runtime.adapter.adapter_module import find_halves
from inkling_runtime.adapter.layouts import Layout
from inkling_runtime.adapter.lora_config import beyond_plain_lora
from inkling_runtime.adapter.module_problems import FACTOR_DTYPES
from inkling_runtime.adapter.safetensors_file import TensorInfo

_EXPERT = re.compile(r"\.mlp\.(?:shared_)?experts\.")
_SINK = "sink_experts."
_OTHER_PARTS = ("mtp", "audio", "visual")
"""Parts of the model whose layers are not those of the language model, by their names."""

_Judged = tuple[Fate, Found | None]


@lru_cache(maxsize=16)
def sglang_effects(subject: LaunchSubject, facts: AdapterFacts) -> tuple[Effect, ...]:
    """Return the effect of every module of an adapter that SGLang accepts."""
    modules: dict[str, list[str]] = defaultdict(list)
    for tensor in stored_tensors(facts):
        modules[module_name(tensor)].append(tensor)
    judge = _Judge(
        facts=facts,
        tensors=stored_tensors(facts),
        landing=landing_of(subject, facts),
        lora_enabled=subject.lora_enabled,
        is_inkling=subject.is_inkling,
        is_shared_outer=is_shared_outer_server(subject),
        targets=pool_targets(subject),
        declared=declared_targets(facts),
        settings=beyond_plain_lora(facts.config),
        interleaved={m.name for m in facts.adapter.modules if m.parsed.row.layout is _ALTERNATING},
        completed=_completed(facts),
    )
    return tuple(judge.effect(module, tensors) for module, tensors in modules.items())


_ALTERNATING = Layout.GATE_UP_INTERLEAVED


def _completed(facts: AdapterFacts) -> set[str]:
    """Return the modules with one factor whose other one SGLang takes from elsewhere.

    Each factor lands by itself, so that experts in halves are whole in SGLang where the shared
    factor has its leading 1.
    """
    return {
        module.name
        for halves in find_halves(facts.adapter.modules).values()
        if len(halves.shared.tensors[0].shape) == 3
        for module in (halves.shared, *halves.numbered)
    }


@dataclass(frozen=True, slots=True)
class _Judge:
    facts: AdapterFacts
    tensors: Mapping[str, TensorInfo]
    landing: Landing
    lora_enabled: bool
    is_inkling: bool
    is_shared_outer: bool | None
    targets: list[str] | None
    declared: list[str] | None
    settings: tuple[str, ...]
    interleaved: set[str]
    completed: set[str]

    def effect(self, module: str, tensors: list[str]) -> Effect:
        fate, found = self._judge(module, tensors)
        is_copy = fate is Fate.DROPPED and module in self.facts.adapter.base_copies
        return Effect(module, fate, *(found or ("", "")), is_meant=not is_copy)

    def _judge(self, module: str, tensors: list[str]) -> _Judged:
        judged = [self._tensor(tensor) for tensor in tensors]
        if all(fate is Fate.DROPPED for fate, _ in judged):
            return judged[0]
        if refused := next((one for one in judged if one[0] is Fate.REFUSED), None):
            return refused
        wrong = [found for fate, found in judged if fate in (Fate.MISAPPLIED, Fate.DROPPED)]
        wrong += list(self._of_module(module, tensors))
        if wrong:
            return Fate.MISAPPLIED, wrong[0]
        return max(judged, key=lambda one: one[0] is Fate.NOT_CHECKED)

    def _of_module(self, module: str, tensors: list[str]) -> Iterator[Found]:
        """Yield what is wrong with a module of which every tensor lands where it is meant."""
        sides = set(filter(None, map(factor_of, tensors)))
        if not sides:
            yield Cause.NO_FACTOR, "it is no LoRA factor, SGLang takes it for one"
        elif len(sides) == 1 and module not in self.completed:
            missing = "lora_B" if sides == {"A"} else "lora_A"
            yield Cause.ONE_FACTOR, f"it has no {missing}, SGLang takes zeros"
        if found := wrong_scale(self.facts, module):
            yield found
        if module in self.interleaved:
            yield Cause.INTERLEAVED, "its rows are g0, u0, g1, u1, …; SGLang reads [gate; up]"
        for setting in self.settings:
            yield Cause.SETTING, f"the config has `{setting}`, which SGLang passes over"

    def _tensor(self, tensor: str) -> _Judged:
        if not self.lora_enabled:
            return Fate.DROPPED, (Cause.LORA_OFF, "the server does not enable LoRA")
        if not self.is_inkling:
            return Fate.NOT_CHECKED, (Cause.NO_MODEL, "the base model is no Inkling")
        if target := self.landing.outside.get(tensor):
            return Fate.REFUSED, (Cause.OUTSIDE_POOL, f"the server has no slot for `{target}`")
        if 0 in self.tensors[tensor].shape:
            return Fate.DROPPED, (Cause.EMPTY, "it holds no numbers")
        if found := self._lost_by_name(tensor):
            return Fate.DROPPED, found
        server = self.landing.server
        if unknown := self._unknown(tensor):
            return Fate.NOT_CHECKED, unknown
        if server is None or tensor not in self.landing.landed:
            return Fate.DROPPED, self._why_lost(tensor, server)
        found = (
            self.landing.wrong.get(tensor)
            or self._elsewhere(tensor, server)
            or self._not_its_numbers(tensor)
        )
        return (Fate.MISAPPLIED, found) if found else (Fate.APPLIED, None)

    def _lost_by_name(self, tensor: str) -> Found | None:
        """Return why a tensor is lost, where its name and the server's targets tell so."""
        if layer_of(tensor) is not None:
            is_unsized = self.landing.server is None and _EXPERT.search(tensor)
            return self._one_half() if is_unsized else None
        tensor = tensor.replace("unembed_tokens", "lm_head")
        module = module_of(tensor)
        if module is None:
            return Cause.NO_LAYER, "SGLang looks for `layers.N.`, `embed_tokens` or `lm_head`"
        if not is_kept(tensor, self.declared):
            return Cause.NOT_DECLARED, f"`target_modules` do not name `{module}`"
        if factor_of(tensor) is None:
            return Cause.NO_FACTOR, "it is no LoRA factor"
        return None

    def _one_half(self) -> Found | None:
        halves = [name for name in HALVES if self.targets is None or name in self.targets]
        if len(halves) == 2:
            return None
        only = f"`{halves[0]}` alone" if halves else "neither half"
        return Cause.ONE_HALF, f"the server has {only}, experts need gate_up_proj and down_proj"

    def _unknown(self, tensor: str) -> Found | None:
        """Return what would have to be known of the launch to judge a tensor, if it is not."""
        server, slot = self.landing.server, self.landing.slots.get(tensor)
        is_flat_sink = _SINK in tensor and len(self.tensors[tensor].shape) == 2
        if server is None and not is_flat_sink:
            return Cause.NO_MODEL, "the base model's sizes are not known"
        if server is not None and self.targets is None:
            return Cause.TARGETS_UNKNOWN, "the server's targets are not known"
        if slot is not None and slot.is_outer and self.is_shared_outer is None:
            return Cause.LAYOUT_UNKNOWN, "the server's layout of experts is not known"
        return None

    def _why_lost(self, tensor: str, server: ServerSlots | None) -> Found:
        slot, index = self.landing.slots.get(tensor), layer_of(tensor)
        if _SINK in tensor and (slot is None or not slot.has_experts):
            return Cause.SINK_NAME, "SGLang looks for `shared_experts`"
        if slot is None or server is None or index is None:
            return Cause.REPLACED, "a later tensor takes its place"
        layer = server.spec.layers[index]
        if slot.has_experts and not layer.is_dense and (found := self._one_half()):
            return found
        if slot.target in server.active_targets(layer):
            return Cause.CUT, "its slot ends before its rows"
        if slot.target.endswith(SHARED) and not (layer.is_dense or server.has_sink):
            return Cause.NO_SINK, "the model's shared experts are one MLP, which has no such slot"
        return Cause.WRONG_LAYER, _why_not_read(slot, index, is_dense=layer.is_dense)

    def _elsewhere(self, tensor: str, server: ServerSlots) -> Found | None:
        """Return why a tensor lands in a module that its name does not mean."""
        slot, index = self.landing.slots.get(tensor), layer_of(tensor)
        other = next((part for part in _OTHER_PARTS if part in tensor.split(".")), None)
        if other is not None:
            return Cause.ELSEWHERE, f"it is of `{other}`, SGLang takes it for the language model"
        if slot is None or index is None or slot.kind not in HALVES:
            return None
        if _SINK in tensor or ("experts." in tensor and not slot.has_experts):
            taken = "routed experts" if slot.has_experts else "a dense MLP"
            return Cause.ELSEWHERE, f"it is of experts, SGLang takes it for {taken}"
        if not slot.has_experts and not server.spec.layers[index].is_dense:
            return Cause.ELSEWHERE, "it is of a dense MLP, SGLang takes it for shared experts"
        return None

    def _not_its_numbers(self, tensor: str) -> Found | None:
        """Return why a tensor lands with numbers that are not meant."""
        file, dtype = file_of(self.facts, tensor), self.tensors[tensor].dtype
        if file not in self.facts.adapter.file.file_names:
            return Cause.FURTHER_FILE, f"SGLang takes it from `{file}`, which it reads as well"
        if dtype not in FACTOR_DTYPES:
            return Cause.NO_FLOATS, f"it is {dtype}, SGLang takes the bare numbers"
        return None


def _why_not_read(slot: Slot, index: int, *, is_dense: bool) -> str:
    if slot.has_experts and is_dense:
        return f"layer {index} is dense, it has no experts"
    if slot.kind in HALVES:
        return f"layer {index} has experts, which need three dimensions or a number each"
    return f"layer {index} has no `{slot.target}`"
