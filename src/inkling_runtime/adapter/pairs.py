"""The two factors of one site, lazily, and the exact ways to rewrite them.

A pair is a site's ΔW = scaling · B·A as moves over the file. Every function here keeps ΔW and
says in its docstring what it does to rank and size. Shapes: R rank, E experts, I inner width,
H hidden width; the rank is axis -2 of A and the last axis of B in every form.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from inkling_runtime.adapter.arithmetic import scale
from inkling_runtime.adapter.moves import (
    Array,
    Zeros,
    block_diagonal,
    cut,
    entries,
    expand,
    join,
    pad,
    permute,
    reshape,
)

ArrayQuestion = Callable[[Array], bool]


class Form(Enum):
    """How the factors of a site are arranged."""

    MATRIX = "matrix"
    """A [R, in], B [out, R]."""
    STACK = "stack"
    """A [1 or E, R, in], B [1 or E, out, R]; 1 means shared by all experts."""
    FLAT = "flat"
    """Experts side by side in one matrix: A [R, H], B [E·I, R]; down A [R, E·I], B [H, R]."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A site's factors and scaling. `is_down` tells which side of a flat form holds experts."""

    a: Array
    b: Array
    scaling: float
    form: Form
    is_down: bool = False

    @property
    def rank(self) -> int:
        """R."""
        return self.a.shape[-2]

    @property
    def experts(self) -> int:
        """E of a stack (the larger of both leading sizes), else 0."""
        return max(self.a.shape[0], self.b.shape[0]) if self.form is Form.STACK else 0

    @property
    def outer(self) -> Array:
        """The factor at the hidden side."""
        return self.b if self.is_down else self.a

    @property
    def is_shared_outer(self) -> bool:
        """Whether the factor at the hidden side is stored once for all experts, in a stack."""
        return self.form is Form.STACK and self.outer.shape[0] == 1


def to_stack(pair: Pair, experts: int) -> Pair:
    """Return a flat pair as a stack with a shared outer factor. Same rank, same size."""
    if pair.form is Form.STACK:
        return pair
    rank = pair.rank
    if pair.is_down:
        inner = pair.a.shape[1] // experts
        a = permute(reshape(pair.a, rank, experts, inner), 1, 0, 2)
        b = reshape(pair.b, 1, *pair.b.shape)
    else:
        a = reshape(pair.a, 1, *pair.a.shape)
        b = reshape(pair.b, experts, pair.b.shape[0] // experts, rank)
    return replace(pair, a=a, b=b, form=Form.STACK)


def to_flat(pair: Pair) -> Pair:
    """Return a stack as a flat pair. Rank E·R unless the outer factor is shared."""
    if pair.form is Form.FLAT:
        return pair
    experts, rank, inner = pair.experts, pair.rank, pair.a.shape[-1]
    a, b = pair.a, pair.b
    if not pair.is_shared_outer:
        return _to_flat_by_blocks(pair, experts)
    if pair.is_down:
        a = reshape(permute(expand_experts(a, experts), 1, 0, 2), rank, experts * inner)
        b = reshape(b, *b.shape[1:])
    else:
        a = reshape(a, *a.shape[1:])
        b = reshape(expand_experts(b, experts), experts * b.shape[1], rank)
    return replace(pair, a=a, b=b, form=Form.FLAT)


def _to_flat_by_blocks(pair: Pair, experts: int) -> Pair:
    a_all, b_all = expand_experts(pair.a, experts), expand_experts(pair.b, experts)
    a_blocks, b_blocks = entries(a_all), entries(b_all)
    if pair.is_down:
        a, b = block_diagonal(a_blocks), join(b_blocks, 1)
    else:
        a, b = join(a_blocks, 0), block_diagonal(b_blocks)
    return replace(pair, a=a, b=b, form=Form.FLAT)


def expand_experts(factor: Array, experts: int) -> Array:
    """Return a stack's factor with a leading size of `experts`."""
    return expand(factor, experts) if factor.shape[0] == 1 else factor


def expand_to_experts(pair: Pair) -> Pair:
    """Return a stack with both factors stored once per expert."""
    experts = pair.experts
    return replace(pair, a=expand_experts(pair.a, experts), b=expand_experts(pair.b, experts))


def collapse(pair: Pair, is_repeated: ArrayQuestion) -> Pair:
    """Return a stack with its outer factor stored once, if all its copies are the same bytes."""
    if pair.form is not Form.STACK:
        return pair
    if pair.outer.shape[0] == 1 or not is_repeated(pair.outer):
        return pair
    once = cut(pair.outer, 0, 0, 1)
    return replace(pair, b=once) if pair.is_down else replace(pair, a=once)


def pad_rank(pair: Pair, rank: int) -> Pair:
    """Return the pair with rank `rank`, the added rows of A and columns of B zero."""
    last = len(pair.b.shape) - 1
    return replace(pair, a=pad(pair.a, len(pair.a.shape) - 2, rank), b=pad(pair.b, last, rank))


def with_scaling(pair: Pair, scaling: float) -> Pair:
    """Return the pair for another scaling, the ratio multiplied into B (rounded in its dtype)."""
    if scaling == pair.scaling:
        return pair
    if pair.scaling == 0:
        return replace(pair, b=Zeros(pair.b.dtype, pair.b.shape), scaling=scaling)
    return replace(pair, b=scale(pair.b, pair.scaling / scaling), scaling=scaling)


def zero_like(pair: Pair, out_features: int) -> Pair:
    """Return a pair without effect beside `pair`: its A, and a zero B of `out_features` rows."""
    shape = (*pair.b.shape[:-2], out_features, pair.rank)
    return replace(pair, b=Zeros(pair.b.dtype, shape))


def tie(gate: Pair, up: Pair, is_same: Callable[[Array, Array], bool]) -> tuple[Pair, Pair]:
    """Return gate and up over one and the same A, as a fused gate_up needs.

    Rank stays where both A are the same bytes; otherwise it is the sum of both ranks, with
    A = [A_gate; A_up] and each B zero in the other's columns.
    """
    if gate.scaling == 0:
        gate = with_scaling(gate, up.scaling)
    up = with_scaling(up, gate.scaling)
    if is_same(gate.a, up.a):
        return gate, replace(up, a=gate.a)
    axis, last = len(gate.a.shape) - 2, len(gate.b.shape) - 1
    if gate.form is Form.STACK:
        experts = max(gate.a.shape[0], up.a.shape[0])
        if gate.a.shape[0] != up.a.shape[0]:
            gate = replace(gate, a=expand_experts(gate.a, experts))
            up = replace(up, a=expand_experts(up.a, experts))
    a = join([gate.a, up.a], axis)
    before = Zeros(up.b.dtype, (*up.b.shape[:-1], gate.rank))
    b_up = join([before, up.b], last)
    return (
        replace(gate, a=a, b=pad(gate.b, last, gate.rank + up.rank)),
        replace(up, a=a, b=b_up),
    )


def untie(gate: Pair, up: Pair, is_zero: ArrayQuestion) -> tuple[Pair, Pair]:
    """Return gate and up with an A each, if `tie` put two into one; else both unchanged.

    Undoes the doubled rank exactly: the halves that are dropped are proven zero.
    """
    if gate.a != up.a or gate.rank % 2:
        return gate, up
    rank, half = gate.rank, gate.rank // 2
    axis, last = len(gate.a.shape) - 2, len(gate.b.shape) - 1
    if not is_zero(cut(gate.b, last, half, rank)) or not is_zero(cut(up.b, last, 0, half)):
        return gate, up
    return (
        replace(gate, a=cut(gate.a, axis, 0, half), b=cut(gate.b, last, 0, half)),
        replace(up, a=cut(up.a, axis, half, rank), b=cut(up.b, last, half, rank)),
    )
