"""What vLLM's loader demands of a layer's routed experts: as stacks, one by one, or packed."""

from collections.abc import Iterator, Mapping

from inkling_cli.checks.launch.vllm.layers import PROJECTIONS, STACKS, Slot
from inkling_cli.checks.launch.vllm.refusal import (
    Factors,
    Reason,
    Refusal,
    check_size,
    too_large,
)

Modules = Mapping[str, Factors]


def check_packed(
    modules: Modules, path: str, number: int, slot: Slot, rank: int, *, may_convert: bool
) -> Iterator[Refusal]:
    """Yield PEFT's packed experts where they cannot be converted, or do not fit once they are."""
    gate_up = modules.get(f"{path}.base_layer")
    if not may_convert or gate_up is None:
        yield Refusal(Reason.PACKED_EXPERTS, modules[path].name)
        return
    yield from _check_packed(gate_up, number, Slot(slot.inputs, 2 * slot.outputs), rank)
    yield from _check_packed(modules[path], number, Slot(slot.outputs, slot.inputs), rank)


def _check_packed(factors: Factors, number: int, slot: Slot, rank: int) -> Iterator[Refusal]:
    """Yield what is too large, or cannot be cut into a part of known size for each expert."""
    limits = (
        (factors.a, 0, (number * rank, slot.inputs)),
        (factors.b, 1, (slot.outputs, number * rank)),
    )
    for letter, (shape, axis, limit) in zip("AB", limits, strict=True):
        if shape is None:
            continue
        fits = len(shape) == 2 and all(n <= most for n, most in zip(shape, limit, strict=True))
        if not fits or shape[1 - axis] == 0 or shape[axis] % number:
            yield too_large(factors.name, letter, shape, limit)
            return


def check_stacks(
    modules: Modules, path: str, number: int, slot: Slot, rank: int
) -> Iterator[Refusal]:
    """Yield what is missing or too large in a layer's shared-outer stacks."""
    stacks = {name: modules.get(f"{path}.{name}") for name in STACKS}
    present = [name for name, factors in stacks.items() if factors is not None]
    if not present:
        return
    if len(present) < len(STACKS):
        lacking = next(name for name in STACKS if name not in present)
        message = f"it has experts.{present[0]} but no experts.{lacking}"
        yield Refusal(Reason.MISSING_EXPERTS, path, message)
        return
    for name, factors in stacks.items():
        if factors is not None:
            yield from _check_stack(factors, number, slot, rank, is_down=name == "w2")


def _check_stack(
    factors: Factors, number: int, slot: Slot, rank: int, *, is_down: bool
) -> Iterator[Refusal]:
    inputs, outputs = (slot.outputs, slot.inputs) if is_down else (slot.inputs, slot.outputs)
    limits = (
        (factors.a, (number if is_down else 1, rank, inputs)),
        (factors.b, (1 if is_down else number, outputs, rank)),
    )
    for letter, (shape, limit) in zip("AB", limits, strict=True):
        if shape is None:
            continue
        fits = len(shape) == 3 and (shape[0] == limit[0] or (limit[0] == 1 and shape[0] > 1))
        if not fits or shape[1] > limit[1] or shape[2] > limit[2]:
            yield too_large(factors.name, letter, shape, limit)
            return


def check_numbered(
    modules: Modules, path: str, number: int, slot: Slot, rank: int
) -> Iterator[Refusal]:
    """Yield what is missing, unlike or too large in a layer's experts stored one by one."""
    found = {
        (expert, name): modules.get(f"{path}.{expert}.{name}")
        for name in PROJECTIONS
        for expert in range(number)
    }
    if not any(found.values()):
        return
    experts = {key: factors for key, factors in found.items() if factors is not None}
    if len(experts) < len(found):
        expert, name = next(key for key in found if key not in experts)
        message = f"it has no experts.{expert}.{name}"
        yield Refusal(Reason.MISSING_EXPERTS, path, message)
        return
    down = Slot(slot.outputs, slot.inputs)
    for name in PROJECTIONS:
        layer = [experts[expert, name] for expert in range(number)]
        refusals = [*_check_alike(layer)]
        for factors in layer:
            refusals += check_size(factors, down if name == "down_proj" else slot, rank)
        yield from refusals[:1]


def _check_alike(experts: list[Factors]) -> Iterator[Refusal]:
    first = experts[0]
    for other in experts:
        if (other.a, other.b) != (first.a, first.b) and None not in (other.a, other.b):
            message = (
                f"lora_A is {list(other.a or ())}, that of `{first.name}` is {list(first.a or ())}"
            )
            yield Refusal(Reason.TOO_LARGE, other.name, message)
            return
