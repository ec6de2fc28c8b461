"""How SGLang would load an adapter, told from names and shapes: where it fails, what lands where.

No rules here. The trap: most faults do not show at start-up. SGLang reads and merges the tensors
then; it looks for their modules and copies them only when the first request needs the adapter.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.sglang.causes import Found
from inkling_cli.checks.launch.sglang.head_fit import fit_heads, is_kept
from inkling_cli.checks.launch.sglang.layouts import is_shared_outer_server
from inkling_cli.checks.launch.sglang.merged_factors import UnfitError
from inkling_cli.checks.launch.sglang.pool import declared_targets, pool_targets
from inkling_cli.checks.launch.sglang.reading import ReadFactors, read_factors
from inkling_cli.checks.launch.sglang.served_model import served_spec
from inkling_cli.checks.launch.sglang.slot_fit import (
    Fit,
    Refusal,
    fit_experts,
    fit_outer,
    fit_plain,
)
from inkling_cli.checks.launch.sglang.slots import Content, ServerSlots, Slot, no_module, target_of
from inkling_cli.checks.launch.sglang.weights import stored_tensors
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.sglang_targets import POOL_TARGETS
from inkling_cli.checks.stage import Stage
from inkling_runtime.adapter.model_spec import LayerSpec

_ONE_RANK = ("--tp-size", "--pp-size", "--ep-size")


@dataclass(frozen=True, slots=True)
class Fault:
    """Where loading ends, at which tensor, and why."""

    stage: Stage
    tensor: str
    message: str
    is_layout: bool = False
    """Whether the layout of experts is not the server's."""


@dataclass(slots=True)
class Landing:
    """What becomes of an adapter's tensors.

    Attributes:
        fault: the first one, for which SGLang refuses the adapter; else None.
        server: the slots, where the model's sizes and the server's targets are known.
        wrong: tensor on disk that lands, but not as it is meant → why, as cause and in words.
        landed: tensors on disk that land, to slots that a module reads.
        slots: tensor on disk → the slot that it is put into, read or not.
        outside: tensor on disk → the target that it needs, where the pool lacks it.
        is_per_expert: whether it has a factor for each expert where a slot has one for all.
    """

    fault: Fault | None = None
    server: ServerSlots | None = None
    wrong: dict[str, Found] = field(default_factory=dict)
    landed: set[str] = field(default_factory=set)
    slots: dict[str, Slot] = field(default_factory=dict)
    outside: dict[str, str] = field(default_factory=dict)
    is_per_expert: bool = False

    def take(self, fit: Fit) -> None:
        """Take over how the content of one slot fits."""
        self.wrong |= fit.wrong
        self.landed |= fit.landed


def loading_fault(subject: LaunchSubject, adapter: AdapterFacts) -> Fault | None:
    """Return the first fault of an adapter's tensors, or None.

    Targets and ranks against the server's are other rules' business.
    """
    return landing_of(subject, adapter).fault


def load_stage(adapter: AdapterFacts) -> Stage:
    """Return the stage at which SGLang reads an adapter's files."""
    return Stage.STARTUP if adapter.ref.at_startup else Stage.DYNAMIC_LOAD


@lru_cache(maxsize=16)
def landing_of(subject: LaunchSubject, adapter: AdapterFacts) -> Landing:
    """Return what becomes of an adapter's tensors in the slots of a launch."""
    factors = read_factors(subject, adapter)
    fault = _reading_fault(subject, adapter, factors) or _naming_fault(factors)
    server = _server_slots(subject, adapter)
    landing = Landing(fault, server, outside=_outside_pool(subject, adapter, factors))
    if server is None or factors.unfit is not None:
        return landing
    refusals = list(_land(landing, server, adapter, factors))
    landing.is_per_expert = any(refusal.is_layout for refusal in refusals)
    if fault is None and all(subject.launch.integer(name) in (None, 1) for name in _ONE_RANK):
        landing.fault = next((_late(refusal) for refusal in refusals), None)
    return landing


def _outside_pool(
    subject: LaunchSubject, adapter: AdapterFacts, factors: ReadFactors
) -> dict[str, str]:
    pool, declared = pool_targets(subject), declared_targets(adapter)
    if pool is None:
        return {}
    named = [pair for layer in factors.layers.values() for pair in layer.items()]
    named += [pair for pair in factors.others.items() if is_kept(pair[0], declared)]
    found: dict[str, str] = {}
    for name, factor in named:
        target = target_of(name, POOL_TARGETS)
        if target is not None and target_of(name, pool) is None:
            found |= dict.fromkeys(factor.tensors, target)
    return found


def _late(refusal: Refusal) -> Fault:
    return Fault(Stage.FIRST_USE, refusal.tensor, refusal.message, refusal.is_layout)


def _reading_fault(
    subject: LaunchSubject, adapter: AdapterFacts, factors: ReadFactors
) -> Fault | None:
    """Return what SGLang fails at while it reads and merges the tensors."""
    spec, stage = served_spec(subject), load_stage(adapter)
    if spec is not None and factors.layers and max(factors.layers) >= spec.num_layers:
        last = max(factors.layers)
        name = next(iter(factors.layers[last]))
        message = f"`{name}` is of layer {last}, the model has {spec.num_layers} layers"
        return Fault(stage, name, message)
    for name in factors.others:
        if "embed_tokens" not in name and "lm_head" not in name and _is_added_token(name):
            message = f"`{name}` holds embeddings of added tokens, which SGLang refuses"
            return Fault(stage, name, message)
    unfit = factors.unfit
    return Fault(stage, unfit.tensor, unfit.message) if unfit is not None else None


def _naming_fault(factors: ReadFactors) -> Fault | None:
    """Return the first tensor that no server has a module for."""
    for layer in factors.layers.values():
        for name in layer:
            if target_of(name, POOL_TARGETS) is None:
                return Fault(Stage.FIRST_USE, name, no_module(name))
    return None


def _server_slots(subject: LaunchSubject, adapter: AdapterFacts) -> ServerSlots | None:
    spec = served_spec(subject)
    if spec is None:
        return None
    targets = pool_targets(subject)
    is_shared_outer = is_shared_outer_server(subject)
    rank = adapter.config.rank
    return ServerSlots(spec, POOL_TARGETS if targets is None else targets, is_shared_outer, rank)


def _land(
    landing: Landing, server: ServerSlots, adapter: AdapterFacts, factors: ReadFactors
) -> Iterator[Refusal]:
    """Put an adapter's factors into the slots; yield what SGLang fails at."""
    dtypes = {name: info.dtype for name, info in stored_tensors(adapter).items()}
    for index, tensors in factors.layers.items():
        if index >= server.spec.num_layers:
            continue
        layer = server.spec.layers[index]
        known = {n: f for n, f in tensors.items() if target_of(n, server.targets) is not None}
        try:
            contents = server.fill(layer, known)
        except UnfitError as error:
            yield Refusal(error.tensor, error.message)
            continue
        _note_slots(landing, contents)
        active = server.active_targets(layer)
        for slot, content in contents.items():
            if slot.target in active and content:
                yield from _unscalable(slot, content, dtypes)
                fit = _fit(server, layer, slot, content, contents)
                landing.take(fit)
                yield from fit.refusals
    declared = declared_targets(adapter)
    kept = {n: f for n, f in factors.others.items() if is_kept(n, declared)}
    fit = fit_heads(server.spec, server.rank, kept, server.targets)
    landing.take(fit)
    yield from fit.refusals


def _note_slots(landing: Landing, contents: Mapping[Slot, Content]) -> None:
    for slot, content in contents.items():
        for _, factor in content.values():
            landing.slots |= dict.fromkeys(factor.tensors, slot)


def _fit(
    server: ServerSlots,
    layer: LayerSpec,
    slot: Slot,
    content: Content,
    contents: Mapping[Slot, Content],
) -> Fit:
    shape = server.shape(layer, slot)
    if slot.is_outer and server.is_shared_outer:
        return fit_outer(content, shape, server.num_experts(slot))
    if slot.has_experts:
        return fit_experts(slot, content, shape)
    has_a = bool(contents.get(Slot(slot.target, "A")))
    fit = fit_plain(slot, content[None], shape, has_a=has_a)
    if slot.factor == "A" and not contents.get(Slot(slot.target, "B")):
        name = content[None][0]
        fit.refusals.append(Refusal(name, f"`{name}` has no lora_B beside it"))
    return fit


def _unscalable(slot: Slot, content: Content, dtypes: Mapping[str, str]) -> Iterator[Refusal]:
    """Yield expert factors of a type that cannot be multiplied by the scale."""
    if not slot.has_experts or slot.factor == "A":
        return
    for _, factor in content.values():
        for tensor in factor.tensors:
            if dtypes[tensor].startswith("F8"):
                message = f"is {dtypes[tensor]}, expected a type of at least 16 bits"
                yield Refusal(tensor, f"`{tensor}` {message}")


def _is_added_token(name: str) -> bool:
    return "input_embeddings" in name or "output_embeddings" in name
