"""The second LoRA product, for whoever reads what it is to be added to.

Other kernels inline `add_deltas`; `expand` is a launch of its own for readers that do not. A tile
of tokens may mix adapters: it takes one product for each slot between the smallest and the
largest of its ids that is really there. What a newcomer gets wrong: sums of the first product are
undefined in rows without an adapter and in columns beyond the adapter's rank. They are never
loaded.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_runtime.ops.kernels.launch import launch
from inkling_runtime.ops.kernels.slots_table import (
    MIN_RANK,
    TABLE_COLUMNS,
    are_aligned,
    rank_block,
)
from inkling_runtime.ops.lora_pair import LoraPair
from inkling_runtime.ops.lora_slots import LoraPart, LoraSlots
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.token_adapters import TokenAdapters

_CHUNK_ELEMENTS = tl.constexpr(4096)
"""Partial sums that a program has on their way at a time; more would not fit its registers."""


class Delta(NamedTuple):
    """One part of a pending delta, as kernels take it."""

    shrunk: Any
    ids: Any
    table: Any
    scalings: Any
    splits: int
    width: int
    column: int
    expert: int


class _Section(NamedTuple):
    """Features of y that a delta owns, and the first program that works on them."""

    start: int
    stop: int
    first_program: int


@triton.jit
def _delta_of_slot(
    delta, slot, rank, mine, rows, features, feature_mask, num_tokens,
    DTYPE: tl.constexpr, BLOCK_R: tl.constexpr, ALIGNED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return scaling · B · z of one slot, fp32 [rows, features]."""
    address = tl.load(delta.table + slot * TABLE_COLUMNS + 1)
    expert_stride = tl.load(delta.table + slot * TABLE_COLUMNS + 4)
    address += delta.expert * expert_stride * (DTYPE.primitive_bitwidth // 8)
    if ALIGNED:
        rank = tl.multiple_of(rank, 8)
        b_factor = tl.multiple_of(address.to(tl.pointer_type(DTYPE)), 16)
    else:
        b_factor = address.to(tl.pointer_type(DTYPE))
    CHUNK: tl.constexpr = max(1, min(8, _CHUNK_ELEMENTS // (rows.shape[0] * BLOCK_R)))
    total = tl.zeros([rows.shape[0], features.shape[0]], dtype=tl.float32)
    for first in range(0, rank, BLOCK_R):
        columns = first + tl.arange(0, BLOCK_R)
        z = tl.zeros([rows.shape[0], BLOCK_R], dtype=tl.float32)
        place = rows[:, None] * delta.width + (delta.column + columns)[None, :]
        partial = delta.shrunk
        for chunk in range(0, delta.splits, CHUNK):
            for i in tl.static_range(CHUNK):
                there = columns < tl.where(chunk + i < delta.splits, rank, 0)
                z += tl.load(partial + place, mask=mine[:, None] & there[None, :], other=0.0)
                partial += num_tokens.to(tl.int64) * delta.width
        inside = columns < rank
        b = tl.load(
            b_factor + features[:, None] * rank + columns[None, :],
            mask=feature_mask[:, None] & inside[None, :],
            other=0.0,
        ).to(tl.float32)
        total += tl.dot(z, tl.trans(b), input_precision=PRECISION)
    return total * tl.load(delta.scalings + slot)


@triton.jit
def add_deltas(
    x, deltas, rows, row_mask, features, feature_mask, num_tokens,
    DTYPE: tl.constexpr, BLOCK_R: tl.constexpr, ALIGNED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return x plus its deltas as fp32, rounded to DTYPE where a row has an adapter.

    Args:
        x: fp32 [rows, features], at least 16 rows, values of DTYPE.
        deltas: a tuple of `Delta`, of the same adapters; may be empty.
        rows: [rows], the tokens.
        row_mask: [rows]; other rows come back as they are.
        features: [features], counted from the first of the site.
        feature_mask: [features].
        num_tokens: T.
        DTYPE: of the base model and the factors.
        BLOCK_R: ranks of one product.
        ALIGNED: `LoraSlots.is_aligned` of all sites.
        PRECISION: `precision_of`.
    """
    if len(deltas) > 0:
        ids = tl.load(deltas[0].ids + rows, mask=row_mask, other=-1).to(tl.int32)
        first = tl.min(tl.where(ids >= 0, ids, 2147483647))
        last = tl.max(ids)
        total = tl.zeros([rows.shape[0], features.shape[0]], dtype=tl.float32)
        for slot in range(first, last + 1):
            mine = ids == slot
            if tl.max(mine.to(tl.int32)) > 0:
                for i in tl.static_range(len(deltas)):
                    rank = tl.load(deltas[i].table + slot * TABLE_COLUMNS + 2).to(tl.int32)
                    if rank > 0:
                        own = _delta_of_slot(
                            deltas[i], slot, rank, mine, rows, features, feature_mask,
                            num_tokens, DTYPE, BLOCK_R, ALIGNED, PRECISION,
                        )  # fmt: skip
                        # Not a plain sum: another adapter's infinity times 0 is no 0.
                        total = tl.where(mine[:, None], total + own, total)
        x = tl.where((ids >= 0)[:, None], (x + total).to(DTYPE).to(tl.float32), x)
    return x


@triton.jit(do_not_specialize=["num_tokens"])
def lora_expand_kernel(
    y, y_stride, deltas, sections, num_tokens,
    BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
    BLOCK_R: tl.constexpr, ALIGNED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add deltas to y in place; grid (token tiles, feature tiles of all sections).

    `deltas` has a tuple for each section: no feature is in two of them.
    """
    rows = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    row_mask = rows < num_tokens
    program = tl.program_id(1)
    for i in tl.static_range(len(deltas)):
        section = sections[i]
        width = section.stop - section.start
        tile = program - section.first_program
        if (tile >= 0) & (tile < tl.cdiv(width, BLOCK_C)):
            features = tile * BLOCK_C + tl.arange(0, BLOCK_C)
            feature_mask = features < width
            places = y + rows.to(tl.int64)[:, None] * y_stride + (section.start + features)[None, :]
            mask = row_mask[:, None] & feature_mask[None, :]
            values = tl.load(places, mask=mask, other=0.0).to(tl.float32)
            values = add_deltas(
                values, deltas[i], rows, row_mask, features, feature_mask, num_tokens,
                y.dtype.element_ty, BLOCK_R, ALIGNED, PRECISION,
            )  # fmt: skip
            ids = tl.load(deltas[i][0].ids + rows, mask=row_mask, other=-1)
            tl.store(places, values, mask=mask & (ids >= 0)[:, None])


def expand(y: Tensor, pending: PendingDelta) -> None:
    """Add a pending delta to y [T, out] in place; rows without an adapter are not written."""
    assert y.stride(1) == 1
    block_t, block_c, num_warps = (16, 64, 4) if len(y) <= 256 else (64, 64, 8)
    owners: dict[tuple[int, int], list[Delta]] = {}
    for part, delta in zip(pending.parts, deltas_of(pending), strict=True):
        owners.setdefault((part.start, part.stop), []).append(delta)
    sections, programs = [], 0
    for start, stop in owners:
        sections.append(_Section(start, stop, programs))
        programs += triton.cdiv(stop - start, block_c)
    _require_apart(sections)
    launch(
        lora_expand_kernel,
        (triton.cdiv(len(y), block_t), programs),
        y,
        y.stride(0),
        tuple(map(tuple, owners.values())),
        tuple(sections),
        len(y),
        BLOCK_T=block_t,
        BLOCK_C=block_c,
        PRECISION=precision_of(y.dtype),
        **layout_of(part.slots for part in pending.parts),
        num_warps=num_warps,
        num_stages=1,
    )


def _require_apart(sections: Sequence[_Section]) -> None:
    """Require that no two programs write the same feature."""
    ordered = sorted(sections)
    for first, second in pairwise(ordered):
        if first.stop > second.start:
            raise ValueError(
                f"parts of a delta overlap, {first.start} to {first.stop} and {second.start} to "
                f"{second.stop}; expected the same features or none in common"
            )


def deltas_of(pending: PendingDelta) -> tuple[Delta, ...]:
    """Return the parts of a pending delta as kernels take them."""
    splits, _, width = pending.shrunk.shape
    return tuple(
        Delta(
            pending.shrunk,
            pending.adapters.ids,
            part.slots.table,
            part.slots.scalings,
            splits,
            width,
            column,
            part.expert,
        )
        for part, column in zip(pending.parts, pending.columns, strict=True)
    )


def sections_of(pending: PendingDelta | None, starts: Sequence[int]) -> tuple[Delta, ...]:
    """Return one `Delta` for each section of y, given by its first feature; none without a delta.

    A section whose site no adapter has gets one of rank 0.
    """
    if pending is None:
        return ()
    deltas = dict(zip((part.start for part in pending.parts), deltas_of(pending), strict=True))
    any_delta = next(iter(deltas.values()))
    nothing = _no_factors(len(pending.parts[0].slots), any_delta.table.device)
    absent = any_delta._replace(table=nothing.table, scalings=nothing.scalings, column=0)
    return tuple(deltas.get(start, absent) for start in starts)


@cache
def _no_factors(num_slots: int, device: torch.device) -> LoraSlots:
    return LoraSlots([None] * num_slots, device)


def layout_of(sites: Iterable[LoraSlots]) -> dict[str, Any]:
    """Return the constants of a kernel that expands these sites."""
    sites = list(sites)
    block = rank_block(sites) or MIN_RANK
    return {"BLOCK_R": min(block, 32), "ALIGNED": are_aligned(sites)}


def precision_of(dtype: torch.dtype) -> str:
    """Return how `tl.dot` takes its fp32 operands in a model of this dtype.

    The sums of the first product are fp32, the factors are not: tf32 holds bf16 and fp16 exactly
    and rounds the sums to 11 bits, which is finer than the bf16 result and as fine as an fp16 one.
    """
    return "ieee" if dtype == torch.float32 else "tf32"


def real_slots(in_features: int, out_features: int, rank: int, count: int = 4) -> LoraSlots:
    """Return bf16 factors of one site of real size, for `VARIANTS`."""
    a = torch.empty(rank, in_features, dtype=torch.bfloat16)
    b = torch.empty(out_features, rank, dtype=torch.bfloat16)
    return LoraSlots([LoraPair(a, b, 1.0)] * count, a.device)


def real_pending(
    num_tokens: int, in_features: int, widths: tuple[int, ...], rank: int, splits: int
) -> PendingDelta:
    """Return a delta of sites of real size side by side, for `VARIANTS`."""
    parts, start = [], 0
    for width in widths:
        parts.append(LoraPart(start, start + width, real_slots(in_features, width, rank)))
        start += width
    ids = torch.empty(num_tokens, dtype=torch.int64)
    return PendingDelta(
        torch.empty(splits, num_tokens, rank * len(parts)),
        tuple(parts),
        tuple(rank * i for i in range(len(parts))),
        TokenAdapters(ids, ()),
    )


def _real_expand(num_tokens: int, rank: int, splits: int) -> None:
    y = torch.empty(num_tokens, 49152, dtype=torch.bfloat16)
    expand(y, real_pending(num_tokens, 6144, (24576, 24576), rank, splits))


VARIANTS = {
    "1 token, rank 32": lambda: _real_expand(1, 32, 24),
    "8192 tokens, rank 128": lambda: _real_expand(8192, 128, 1),
}
