"""What vLLM's loader does with an adapter, told from names and shapes: why it refuses it.

Not a copy of the loader: each reason is one that was observed or that follows from what the loader
asserts. Without the model's config only what needs no sizes is told. The loader writes a factor
into the corner of a buffer: smaller ones are accepted, larger ones are not.
"""

import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from functools import lru_cache

from inkling_cli.checks.effect import module_name
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.options.table import read_json_object
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.expert_loader import (
    check_numbered,
    check_packed,
    check_stacks,
)
from inkling_cli.checks.launch.vllm.layers import (
    PARENTS,
    AdaptableModules,
    adaptable_modules,
)
from inkling_cli.checks.launch.vllm.limits import rank_limit
from inkling_cli.checks.launch.vllm.loader_names import (
    is_base_copy,
    is_expected,
    parse_factor_name,
)
from inkling_cli.checks.launch.vllm.refusal import Factors, Reason, Refusal, check_size
from inkling_cli.checks.launch.vllm.wrapping import SHARED_FLAG, is_wrapped

_LAYOUT = re.compile(r"\.mlp\.experts\.(?:w[123]|\d+\.(?:gate|up|down)_proj)\.")
"""Names of experts whose layout a flag of the launch decides on."""


@lru_cache(maxsize=16)
def refusals(subject: LaunchSubject, facts: AdapterFacts) -> tuple[Refusal, ...]:
    """Return why vLLM refuses an adapter for the names and shapes of its tensors; () if not."""
    known = adaptable_modules(subject.model.spec) if subject.model.spec else None
    modules = read_factors(facts)
    refused = tuple(_refused_names(subject, facts, known or AdaptableModules({})))
    if refused or known is None:
        return (*refused, *_missing_plain(modules, None))
    loader = _Loader(subject, facts, known, modules)
    return tuple(loader.refusals())


def is_refused_for_itself(subject: LaunchSubject, facts: AdapterFacts) -> bool:
    """Return whether vLLM refuses an adapter under every launch, not for a flag or a rank limit.

    What it would drop of an adapter that another launch serves is worth telling already.
    """
    return facts.adapter.file.is_sharded or any(
        not (refusal.reason is Reason.UNEXPECTED_MODULE and _LAYOUT.search(refusal.name))
        and not (refusal.reason is Reason.TOO_LARGE and facts.max_rank > rank_limit(subject.launch))
        for refusal in refusals(subject, facts)
    )


@lru_cache(maxsize=16)
def read_factors(facts: AdapterFacts) -> Mapping[str, Factors]:
    """Return path in vLLM → the factors that the loader has there, of all names that it can read.

    The loader goes through the names in alphabetical order, and a later factor replaces an earlier
    one under the same path.
    """
    modules: dict[str, Factors] = defaultdict(Factors)
    for name, tensor in sorted(facts.adapter.file.tensors.items()):
        factor = None if is_base_copy(name) else parse_factor_name(name)
        if factor is None:
            continue
        factors = modules[factor.module]
        factors.name = module_name(name)
        factors.first = factors.first or factors.name
        if factor.is_a:
            factors.a, factors.a_tensor = tensor.shape, name
        else:
            factors.b, factors.b_tensor = tensor.shape, name
    return dict(modules)


def _refused_names(
    subject: LaunchSubject, facts: AdapterFacts, known: AdaptableModules
) -> Iterator[Refusal]:
    shared = subject.launch.is_on(SHARED_FLAG)
    experts = subject.model.spec.num_experts if subject.model.spec else 0
    for name in facts.adapter.file.tensors:
        if is_base_copy(name):
            continue
        factor = parse_factor_name(name)
        if factor is None:
            yield Refusal(Reason.UNSUPPORTED_NAME, name)
            continue
        is_known = is_expected(factor.module, known, shared=shared, experts=experts)
        if not is_known and "base_layer" not in name:
            yield Refusal(Reason.UNEXPECTED_MODULE, name)


def _missing_plain(
    modules: Mapping[str, Factors], packed: Container[str] | None
) -> Iterator[Refusal]:
    """Yield modules that lack a factor and that the loader cannot do without.

    `packed` are the slices that are packed into a wrapped module, which may lack their lora_A; None
    where that is not known.
    """
    for path, factors in modules.items():
        if factors.a is not None and factors.b is not None:
            continue
        is_slice = path.rpartition(".")[2] in PARENTS and (packed is None or path in packed)
        if factors.b is None or not is_slice:
            has, lacks = ("lora_A", "lora_B") if factors.b is None else ("lora_B", "lora_A")
            yield Refusal(Reason.MISSING_FACTOR, factors.name, f"it has {has} but no {lacks}")


class _Loader:
    def __init__(
        self,
        subject: LaunchSubject,
        facts: AdapterFacts,
        known: AdaptableModules,
        modules: Mapping[str, Factors],
    ) -> None:
        self.subject = subject
        self.facts = facts
        self.known = known
        self.modules = modules
        self.shared = subject.launch.is_on(SHARED_FLAG)
        self.rank = rank_limit(subject.launch)
        self.expert_layers = {
            path: layer for path, layer in known.expert_layers.items() if is_wrapped(path, subject)
        }

    def refusals(self) -> Iterator[Refusal]:
        if not self.modules:
            yield Refusal(Reason.MISSING_EXPERTS, "", "it holds no factors at all")
        packed = {path for path in self.known.slots if is_wrapped(path, self.subject)}
        yield from _missing_plain(self.modules, packed)
        yield from self._wrong_embeddings()
        for path, slot in self.known.slots.items():
            factors = self.modules.get(path)
            if factors is not None and is_wrapped(path, self.subject):
                yield from check_size(factors, slot, self.rank)
        for path, (number, slot) in self.expert_layers.items():
            if path in self.modules:
                may_convert = self._may_convert()
                yield from check_packed(
                    self.modules, path, number, slot, self.rank, may_convert=may_convert
                )
            elif self.shared:
                yield from check_stacks(self.modules, path, number, slot, self.rank)
            else:
                yield from check_numbered(self.modules, path, number, slot, self.rank)

    def _wrong_embeddings(self) -> Iterator[Refusal]:
        """Yield embeddings' factors that are not as wide as the vocabulary, wherever they lead."""
        vocabulary = self.subject.model.spec.unpadded_vocab_size if self.subject.model.spec else 0
        for name, tensor in self.facts.adapter.file.tensors.items():
            if name.endswith("lora_embedding_A") and tensor.shape[1:2] != (vocabulary,):
                message = (
                    f"lora_embedding_A is {list(tensor.shape)}, "
                    f"vLLM takes one with {vocabulary} columns, the size of the vocabulary"
                )
                yield Refusal(Reason.TOO_LARGE, module_name(name), message)

    def _may_convert(self) -> bool:
        """Whether packed experts are converted; a multimodal model's cannot be."""
        spec = self.subject.model.spec
        is_text = spec is not None and not spec.is_multimodal
        return is_text and converts_packed(self.subject, self.facts)


def converts_packed(subject: LaunchSubject, facts: AdapterFacts) -> bool:
    """Return whether the launch asks vLLM to convert an adapter's packed experts."""
    is_mixed = subject.launch.is_on("--enable-mixed-moe-lora-format")
    return is_mixed and facts.name in packed_adapters(subject)


def packed_adapters(subject: LaunchSubject) -> frozenset[str]:
    """Return the names of the adapters that `--lora-modules` says are in PEFT's packed form."""
    entries = (read_json_object(value) for value in subject.launch.values("--lora-modules"))
    return frozenset(
        str(entry.get("name"))
        for entry in entries
        if entry and entry.get("is_3d_lora_weight") is True
    )
