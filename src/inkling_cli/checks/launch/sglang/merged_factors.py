"""What SGLang makes of an adapter's tensors when it reads them, told from their shapes. No rules.

SGLang brings the names of a layer to those of its runtime: q, k, v and r become one `qkvr`, flat
shared experts become stacks, `w1`, `w3`, `w2` become `gate_up_proj` and `down_proj`. Where parts
do not fit each other, the adapter is refused right here; where a part is missing, its siblings
keep their names, which no module answers to later. Each factor keeps the names of the tensors on
disk that it was made of.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """What one tensor on disk gives to a factor: so many rows. None stands for zeros."""

    tensor: str | None
    rows: int


@dataclass(frozen=True, slots=True)
class Factor:
    """A lora_A or lora_B as SGLang has it by then, and what it was joined from, in order."""

    shape: Shape
    parts: tuple[Part, ...]

    @property
    def tensors(self) -> list[str]:
        """The tensors on disk that it holds."""
        return [part.tensor for part in self.parts if part.tensor is not None]


Layer = dict[str, Factor]
"""Tensor names of one layer, as SGLang has them by then, in its order → factors."""

_LAYER = re.compile(r"layers\.(\d+)\.")
_QKVR = ("wq_du", "wk_dv", "wv_dv", "wr_du")
_RENAMED = ((".w1.", ".gate_proj."), (".w3.", ".up_proj."), (".w2.", ".down_proj."))
_GATE_UP = (".w1.", ".w3.", ".gate_proj.", ".up_proj.", ".gate_up_proj.")
_DOWN = (".w2.", ".down_proj.")


class UnfitError(Exception):
    """Tensors that SGLang cannot bring together."""

    def __init__(self, tensor: str, message: str) -> None:
        super().__init__(message)
        self.tensor = tensor
        self.message = message


def layer_of(name: str) -> int | None:
    """Return the layer that SGLang takes a tensor's name for; None if for no layer."""
    match = _LAYER.search(name)
    return int(match[1]) if match else None


def split_layers(tensors: Mapping[str, Shape]) -> tuple[dict[int, Layer], Layer]:
    """Return the tensors of each layer, and those of no layer, in the order of their reading."""
    layers: dict[int, Layer] = {}
    others: Layer = {}
    for name, shape in tensors.items():
        index = layer_of(name)
        group = others if index is None else layers.setdefault(index, {})
        group[name.replace("unembed_tokens", "lm_head")] = _stored(name, shape)
    return layers, others


def merge_layer(layer: Layer, rank: int, num_shared: int | None) -> Layer:
    """Return a layer's tensors under the runtime's names.

    Args:
        layer: as stored.
        rank: `r` of the adapter's config.
        num_shared: the model's shared experts; None where the model is not known.

    Raises:
        UnfitError: SGLang refuses the adapter here.
    """
    merged = dict(layer)
    _merge_foreign_attention(merged)
    _merge_attention(merged, rank)
    if num_shared:
        _stack_shared_experts(merged, num_shared)
    for name in list(merged):
        renamed = next((name.replace(old, new) for old, new in _RENAMED if old in name), name)
        if renamed != name:
            merged[renamed] = merged.pop(name)
    _merge_gate_and_up(merged)
    return merged


def stack_flat(name: str, factor: Factor, count: int, *, is_down: bool) -> Factor:
    """Return a flat factor of shared experts as the stack that it stands for.

    Raises:
        UnfitError: its width is no multiple of their number.
    """
    shape = factor.shape
    if is_down is not ("lora_A" in name):
        return _like(factor, (1, *shape))
    flat, rank = (shape[1], shape[0]) if is_down else shape
    if flat % count:
        raise UnfitError(
            name, f"`{name}` is {flat} wide, expected a multiple of {count} shared experts"
        )
    width = flat // count
    return _like(factor, (count, rank, width) if is_down else (count, width, rank))


def _merge_foreign_attention(layer: Layer) -> None:
    """Merge `q_proj`, `k_proj`, `v_proj`, which an Inkling does not have, as SGLang does first."""
    has_k = any("k_proj" in name for name in layer)
    for name in [name for name in layer if "q_proj" in name]:
        parts = [name, name.replace("q_proj", "v_proj")]
        if has_k:
            parts.insert(1, name.replace("q_proj", "k_proj"))
        for part in parts:
            if part not in layer:
                raise UnfitError(name, f"`{name}` has no `{part}` beside it")
        joined = _joined([(part, layer[part]) for part in parts], 0)
        for part in parts:
            del layer[part]
        layer[name.replace("q_proj", "qkv_proj")] = joined


def _merge_attention(layer: Layer, rank: int) -> None:
    for name in [name for name in layer if _QKVR[0] in name]:
        parts = [name.replace(_QKVR[0], part) for part in _QKVR]
        if all(part in layer for part in parts):
            layer[name.replace(_QKVR[0], "qkvr")] = _joined([(p, layer[p]) for p in parts], -2)
            for part in parts:
                del layer[part]
    for name, factor in layer.items():
        if "qkvr" in name and "lora_A" in name and factor.shape[-2:-1] == (rank,):
            layer[name] = _repeated(factor, 4)


def _stack_shared_experts(layer: Layer, count: int) -> None:
    for name, factor in layer.items():
        if "shared_experts." not in name or re.search(r"shared_experts\.\d+\.", name):
            continue
        is_down = any(part in name for part in _DOWN)
        if len(factor.shape) == 2 and (is_down or any(part in name for part in _GATE_UP)):
            layer[name] = stack_flat(name, factor, count, is_down=is_down)


def _merge_gate_and_up(layer: Layer) -> None:
    for name in list(layer):
        if "gate_proj" in name:
            up = name.replace("gate_proj", "up_proj")
            gate, other = layer.pop(name), layer.pop(up, None)
            if other is None or 0 in other.shape:
                other = Factor(gate.shape, (Part(None, _rows(gate.shape)),))
            joined = _joined([(name, gate), (up, other)], len(gate.shape) - 2)
            layer[name.replace("gate_proj", "gate_up_proj")] = joined
        elif "gate_up_proj" in name and "lora_A" in name:
            layer[name] = _repeated(layer[name], 2)


def _joined(parts: Sequence[tuple[str, Factor]], axis: int) -> Factor:
    """Return the factor that comes of putting others one after another along an axis."""
    name, first = parts[0][0], parts[0][1].shape
    if not first:
        raise UnfitError(name, f"`{name}` is a single number, expected a matrix")
    axis %= len(first)
    for other, factor in parts[1:]:
        shape = factor.shape
        same = [n for i, n in enumerate(shape) if i != axis]
        if len(shape) != len(first) or same != [n for i, n in enumerate(first) if i != axis]:
            raise UnfitError(
                other, f"`{other}` is {list(shape)}, which does not fit `{name}`, {list(first)}"
            )
    total = sum(factor.shape[axis] for _, factor in parts)
    shape = (*first[:axis], total, *first[axis + 1 :])
    return Factor(shape, tuple(part for _, factor in parts for part in factor.parts))


def _repeated(factor: Factor, times: int) -> Factor:
    shape = factor.shape
    if len(shape) < 2:
        return factor
    return _like(factor, (*shape[:-2], times * shape[-2], shape[-1]))


def _stored(name: str, shape: Shape) -> Factor:
    return Factor(shape, (Part(name, _rows(shape)),))


def _like(factor: Factor, shape: Shape) -> Factor:
    """Return a factor of the same tensors in another shape."""
    if len(factor.parts) != 1:
        return Factor(shape, factor.parts)
    return Factor(shape, (Part(factor.parts[0].tensor, _rows(shape)),))


def _rows(shape: Shape) -> int:
    return shape[-2] if len(shape) > 1 else 0
