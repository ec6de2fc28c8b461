"""How a stored pair of tensors holds the factors of its sites: decode and encode, both exact.

One entry per layout; which module uses which layout is said by the dialects' tables, never
guessed from dimensions. Letters: R rank, E experts, I inner width, H hidden width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from inkling_runtime.adapter.moves import (
    Array,
    cut,
    every_second,
    interleave,
    join,
    permute,
    reshape,
)
from inkling_runtime.adapter.pairs import Form, Pair, expand_experts
from inkling_runtime.adapter.sites import SiteKind


class Layout(Enum):
    """Arrangement of one module's lora_A and lora_B on disk.

    MATRIX: A [R, in], B [out, R].
    GATE_UP: one A for both; B rows [gate; up]: A [R, H], B [2I, R].
    GATE_UP_INTERLEAVED: the same with B rows g0, u0, g1, u1 and so on.
    STACK: A [1 or E, R, in], B [1 or E, out, R].
    STACK_GATE_UP: the same with B rows [gate; up] within each expert.
    STACK_GATE_UP_INTERLEAVED: the same with B rows g0, u0, g1, u1 and so on.
    FLAT: experts side by side: A [R, H], B [E·I, R]; down A [R, E·I], B [H, R].
    NUMBERED: one MATRIX per expert, the expert's number in the name.
    PACKED: PEFT's form of a 3-D parameter: A [E·R, in] with the expert slowest,
        B [out, R·E] with the expert fastest.
    PACKED_GATE_UP: the same with B rows [gate; up].
    PACKED_SWAPPED, PACKED_GATE_UP_SWAPPED: of PEFT before 0.19.1, in and out exchanged:
        A [E·R, out] with the expert slowest, B [in, R·E] with the expert fastest.
    PACKED_BLOCKS, PACKED_GATE_UP_BLOCKS: of Unsloth, PACKED with the expert slower than the rank
        in B as well: B [out, E·R].
    QKVR: q, k, v and r fused: A [R or 4R, H], B rows [q; k; v; r].
    """

    MATRIX = "matrix"
    GATE_UP = "gate_up"
    GATE_UP_INTERLEAVED = "gate_up interleaved"
    STACK = "3-D stack"
    STACK_GATE_UP = "3-D stack of gate_up"
    STACK_GATE_UP_INTERLEAVED = "3-D stack of gate_up interleaved"
    FLAT = "flat"
    NUMBERED = "one 2-D pair per expert"
    PACKED = "packed"
    PACKED_GATE_UP = "packed gate_up"
    PACKED_SWAPPED = "packed, in and out exchanged"
    PACKED_GATE_UP_SWAPPED = "packed gate_up, in and out exchanged"
    PACKED_BLOCKS = "packed expert by expert"
    PACKED_GATE_UP_BLOCKS = "packed gate_up expert by expert"
    QKVR = "fused q, k, v, r"

    @property
    def ndim(self) -> int:
        """Number of dimensions of both tensors."""
        return 3 if self in _STACKS else 2

    @property
    def form(self) -> Form:
        """The form of the pairs that it lays out."""
        if self is Layout.FLAT:
            return Form.FLAT
        if self is Layout.NUMBERED or self.is_packed or self.ndim == 3:
            return Form.STACK
        return Form.MATRIX

    @property
    def is_packed(self) -> bool:
        """Whether the tensors' rank dimension is E·R, so that R must come from the config."""
        return self in _UNPACKERS


_STACKS = (Layout.STACK, Layout.STACK_GATE_UP, Layout.STACK_GATE_UP_INTERLEAVED)


@dataclass(frozen=True, slots=True)
class Stored:
    """A module as stored: both tensors, the rank and scaling of its config, its sites' kinds.

    `out_features` are the rows of B per kind, needed for QKVR alone.
    """

    a: Array
    b: Array
    rank: int
    scaling: float
    kinds: tuple[SiteKind, ...]
    out_features: tuple[int, ...] = ()


def decode(layout: Layout, stored: Stored) -> dict[SiteKind, Pair]:
    """Return the factors of each site that a stored module holds.

    A NUMBERED module gives the matrix of its one expert; the caller stacks them.

    Raises:
        ValueError: the shapes do not fit the layout.
    """
    return _DECODERS[layout](stored)


def encode(layout: Layout, pairs: Sequence[Pair], experts: int) -> tuple[Array, Array]:
    """Return A and B as stored, for one site or for gate and up over one A (`pairs.tie`).

    Raises:
        ValueError: the layout is not one that is written.
    """
    return _ENCODERS[layout](list(pairs), experts)


def _decode_matrix(stored: Stored) -> dict[SiteKind, Pair]:
    kind = stored.kinds[0]
    return {kind: Pair(stored.a, stored.b, stored.scaling, Form.MATRIX, kind.is_down)}


def _decode_stack(stored: Stored) -> dict[SiteKind, Pair]:
    kind = stored.kinds[0]
    if len({stored.a.shape[0], stored.b.shape[0]} - {1}) > 1:
        raise ValueError(f"A holds {stored.a.shape[0]} experts and B {stored.b.shape[0]}")
    return {kind: Pair(stored.a, stored.b, stored.scaling, Form.STACK, kind.is_down)}


def _decode_flat(stored: Stored) -> dict[SiteKind, Pair]:
    kind = stored.kinds[0]
    return {kind: Pair(stored.a, stored.b, stored.scaling, Form.FLAT, kind.is_down)}


def _decode_halves(stored: Stored) -> dict[SiteKind, Pair]:
    axis = len(stored.b.shape) - 2
    rows = stored.b.shape[axis]
    if rows % 2:
        raise ValueError(f"B has {rows} rows for gate and up, expected an even number")
    form = Form.STACK if len(stored.b.shape) == 3 else Form.MATRIX
    gate, up = stored.kinds
    return {
        gate: Pair(stored.a, cut(stored.b, axis, 0, rows // 2), stored.scaling, form),
        up: Pair(stored.a, cut(stored.b, axis, rows // 2, rows), stored.scaling, form),
    }


def _decode_interleaved(stored: Stored) -> dict[SiteKind, Pair]:
    axis = len(stored.b.shape) - 2
    rows = stored.b.shape[axis]
    if rows % 2:
        raise ValueError(f"B has {rows} rows for gate and up, expected an even number")
    form = Form.STACK if len(stored.b.shape) == 3 else Form.MATRIX
    gate, up = stored.kinds
    return {
        gate: Pair(stored.a, every_second(stored.b, axis, 0), stored.scaling, form),
        up: Pair(stored.a, every_second(stored.b, axis, 1), stored.scaling, form),
    }


def _decode_packed(layout: Layout, stored: Stored) -> dict[SiteKind, Pair]:
    rank, rows, columns = stored.rank, stored.a.shape[0], stored.b.shape[1]
    if rows % rank or columns != rows:
        raise ValueError(
            f"A has {rows} rows and B {columns} columns, "
            f"expected the same multiple of the rank {rank}"
        )
    a, b = _UNPACKERS[layout](stored.a, stored.b, rank)
    unpacked = replace(stored, a=a, b=b)
    return _decode_halves(unpacked) if len(stored.kinds) == 2 else _decode_stack(unpacked)


def _unpack(a: Array, b: Array, rank: int) -> tuple[Array, Array]:
    """Return PEFT's A [E·R, in] and B [out, R·E] as [E, R, in] and [E, out, R]."""
    rows, inner = a.shape
    experts = rows // rank
    packed = reshape(b, b.shape[0], rank, experts)
    return reshape(a, experts, rank, inner), permute(packed, 2, 0, 1)


def _unpack_swapped(a: Array, b: Array, rank: int) -> tuple[Array, Array]:
    """Return A [E·R, out] and B [in, R·E] as [E, R, in] and [E, out, R]: each is the other's."""
    rows, out = a.shape
    experts = rows // rank
    packed = reshape(b, b.shape[0], rank, experts)
    return permute(packed, 2, 1, 0), permute(reshape(a, experts, rank, out), 0, 2, 1)


def _unpack_blocks(a: Array, b: Array, rank: int) -> tuple[Array, Array]:
    """Return A [E·R, in] and B [out, E·R] as [E, R, in] and [E, out, R]."""
    rows, inner = a.shape
    experts = rows // rank
    packed = reshape(b, b.shape[0], experts, rank)
    return reshape(a, experts, rank, inner), permute(packed, 1, 0, 2)


_UNPACKERS: dict[Layout, Callable[[Array, Array, int], tuple[Array, Array]]] = {
    Layout.PACKED: _unpack,
    Layout.PACKED_GATE_UP: _unpack,
    Layout.PACKED_SWAPPED: _unpack_swapped,
    Layout.PACKED_GATE_UP_SWAPPED: _unpack_swapped,
    Layout.PACKED_BLOCKS: _unpack_blocks,
    Layout.PACKED_GATE_UP_BLOCKS: _unpack_blocks,
}


def _decode_qkvr(stored: Stored) -> dict[SiteKind, Pair]:
    if sum(stored.out_features) != stored.b.shape[0]:
        raise ValueError(
            f"B has {stored.b.shape[0]} rows, the model's q, k, v and r need {stored.out_features}"
        )
    rank, parts, before = stored.b.shape[1], {}, 0
    for index, (kind, rows) in enumerate(zip(stored.kinds, stored.out_features, strict=True)):
        fused = stored.a.shape[0] != rank
        a = cut(stored.a, 0, index * rank, (index + 1) * rank) if fused else stored.a
        b = cut(stored.b, 0, before, before + rows)
        parts[kind] = Pair(a, b, stored.scaling, Form.MATRIX)
        before += rows
    return parts


_DECODERS: dict[Layout, Callable[[Stored], dict[SiteKind, Pair]]] = {
    Layout.MATRIX: _decode_matrix,
    Layout.GATE_UP: _decode_halves,
    Layout.GATE_UP_INTERLEAVED: _decode_interleaved,
    Layout.STACK: _decode_stack,
    Layout.STACK_GATE_UP: _decode_halves,
    Layout.STACK_GATE_UP_INTERLEAVED: _decode_interleaved,
    Layout.FLAT: _decode_flat,
    Layout.NUMBERED: _decode_matrix,
    Layout.QKVR: _decode_qkvr,
    **{layout: partial(_decode_packed, layout) for layout in _UNPACKERS},
}


def _encode_one(pairs: list[Pair], experts: int) -> tuple[Array, Array]:
    (pair,) = pairs
    return pair.a, pair.b


def _encode_halves(pairs: list[Pair], experts: int) -> tuple[Array, Array]:
    gate, up = pairs
    return gate.a, join([gate.b, up.b], len(gate.b.shape) - 2)


def _encode_interleaved(pairs: list[Pair], experts: int) -> tuple[Array, Array]:
    gate, up = pairs
    return gate.a, interleave(gate.b, up.b, 0)


def _encode_packed(pairs: list[Pair], experts: int) -> tuple[Array, Array]:
    a = expand_experts(pairs[0].a, experts)
    halves = [expand_experts(pair.b, experts) for pair in pairs]
    b = join(halves, 1)
    rank, inner, out = a.shape[1], a.shape[2], b.shape[1]
    return (
        reshape(a, experts * rank, inner),
        reshape(permute(b, 1, 2, 0), out, rank * experts),
    )


_ENCODERS: dict[Layout, Callable[[list[Pair], int], tuple[Array, Array]]] = {
    Layout.MATRIX: _encode_one,
    Layout.GATE_UP: _encode_halves,
    Layout.GATE_UP_INTERLEAVED: _encode_interleaved,
    Layout.STACK: _encode_one,
    Layout.FLAT: _encode_one,
    Layout.NUMBERED: _encode_one,
    Layout.PACKED: _encode_packed,
    Layout.PACKED_GATE_UP: _encode_packed,
}
