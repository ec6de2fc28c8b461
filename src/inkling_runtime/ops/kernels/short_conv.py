"""The short convolution: one launch for any mix of prefill and decode, states included.

A tile of tokens begins where a sequence does, or far enough behind that place to see no history.
So all tokens that read a sequence's state are in one program (per block of channels), and that
one also writes the states of the sequence: it reads first, and then the slot may be the same. No
program waits for another. What remains for the plan: a slot that is read may be written only as
the last state of the very sequence that reads it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_runtime.ops.conv_plan import ConvPlan
from inkling_runtime.ops.kernels.launch import launch
from inkling_runtime.ops.kernels.lora_expand import (
    add_deltas,
    deltas_of,
    layout_of,
    precision_of,
    real_pending,
)
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.segments import Segments

ROWS = tl.constexpr(16)
"""Rows of a state that is written by itself: more than any has, and as many as `tl.dot` needs."""


class Plan(NamedTuple):
    """`ConvPlan`, as kernels take it."""

    read_slots: Any
    write_slots: Any
    write_sequences: Any
    write_ends: Any
    sequences: Any
    cu_seqlens: Any


@triton.jit
def _tile_start(row, plan, num_tokens, BACK: tl.constexpr):
    """Return the row at or before `row` where a tile may begin; T beyond the last token."""
    inside = tl.minimum(row, num_tokens - 1)
    index = inside - tl.load(plan.cu_seqlens + tl.load(plan.sequences + inside))
    start = tl.where(index < BACK, inside - index, inside)
    return tl.where(row < num_tokens, start, num_tokens)


@triton.jit
def tile_bounds(tile, plan, num_tokens, BLOCK_T: tl.constexpr, BACK: tl.constexpr):
    """Return the first row of a tile and the one behind its last, at most BLOCK_T apart."""
    STEP: tl.constexpr = BLOCK_T - BACK
    return (
        _tile_start(tile * STEP, plan, num_tokens, BACK),
        _tile_start((tile + 1) * STEP, plan, num_tokens, BACK),
    )


@triton.jit
def _inputs(
    x, state, deltas, rows, index, mask, read, channels, channel_mask, num_channels, num_tokens,
    BACK: tl.constexpr, BLOCK_R: tl.constexpr, ALIGNED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the inputs x' at rows whose sequence has counted `index` tokens, fp32.

    Negative ones come from the state of slot `read`. `x` is a pair: address and row stride.
    """
    new = mask & (index >= 0)
    values = tl.load(
        x[0] + rows.to(tl.int64)[:, None] * x[1] + channels[None, :],
        mask=new[:, None] & channel_mask[None, :],
        other=0.0,
    ).to(tl.float32)
    values = add_deltas(
        values, deltas, rows, new, channels, channel_mask, num_tokens,
        x[0].dtype.element_ty, BLOCK_R, ALIGNED, PRECISION,
    )  # fmt: skip
    if BACK > 0:
        old = mask & (index < 0)
        places = (read * BACK + BACK + index).to(tl.int64)[:, None] * num_channels
        history = tl.load(
            state + places + channels[None, :],
            mask=old[:, None] & channel_mask[None, :],
            other=0.0,
        ).to(tl.float32)
        values = tl.where(new[:, None], values, history)
    return values


@triton.jit
def _convolve_prefill(
    x, weight, state, deltas, plan, first, last, channels, channel_mask, num_channels,
    num_tokens, num_sequences, num_writes,
    TAPS: tl.constexpr, BLOCK_T: tl.constexpr,
    BLOCK_R: tl.constexpr, ALIGNED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Load a tile of inputs in each step: for an inner state, for a tap, or for a last state.

    Inner states come first: they go to slots that nobody reads, and may need what is overwritten
    later. A sequence that ends in the tile has its last state in the taps; one that goes on has it
    in the step after them.
    """
    BACK: tl.constexpr = TAPS - 1
    lane = tl.arange(0, BLOCK_T)
    token_mask = first + lane < last
    sequences = tl.load(plan.sequences + first + lane, mask=token_mask, other=0)
    starts = tl.load(plan.cu_seqlens + sequences, mask=token_mask, other=0)
    ends = tl.load(plan.cu_seqlens + sequences + 1, mask=token_mask, other=0)
    reads = tl.load(plan.read_slots + sequences, mask=token_mask, other=0)
    whole = token_mask & (starts >= first) & (first + lane == ends - 1)
    writes = tl.load(plan.write_slots + sequences, mask=whole, other=0)
    last_sequence = tl.load(plan.sequences + last - 1).to(tl.int32)
    total = tl.zeros([BLOCK_T, channels.shape[0]], dtype=tl.float32)
    points = num_writes - num_sequences
    for step in range(points + TAPS + 1):
        tap = step - points
        is_tap = (tap >= 0) & (tap < TAPS)
        write = tl.where(tap < 0, num_sequences + step, last_sequence)
        sequence = tl.load(plan.write_sequences + write)
        start = tl.load(plan.cu_seqlens + sequence)
        end = start + tl.load(plan.write_ends + write).to(tl.int32)
        is_wanted = (tap < 0) | ((tap == TAPS) & (end > last))
        is_state = is_wanted & (start >= first) & (start < last)
        if is_tap | is_state:
            rows = tl.where(is_tap, first + tap, end) - BACK + lane
            index = rows - tl.where(is_tap, starts, start)
            read = tl.where(is_tap, reads, tl.load(plan.read_slots + sequence))
            values = _inputs(
                x, state, deltas, rows, index, lane < tl.where(is_tap, last - first, BACK), read,
                channels, channel_mask, num_channels, num_tokens,
                BACK, BLOCK_R, ALIGNED, PRECISION,
            )  # fmt: skip
            slot = tl.where(is_tap, writes, tl.load(plan.write_slots + write))
            place = tl.where(is_tap, tap - 1, lane)
            kept = tl.where(is_tap, whole.to(tl.int32) * tap, (lane < BACK).to(tl.int32)) > 0
            # Others may still have to read what is overwritten: later steps read later places.
            tl.debug_barrier()
            _store_state(
                state, slot, place, kept, values, channels, channel_mask, num_channels, BACK
            )
            here = channel_mask & (channels < tl.where(is_tap, num_channels, 0))
            factor = tl.load(weight + tap * num_channels + channels, mask=here, other=0.0)
            factor += tl.where(tap == BACK, 1.0, 0.0)
            total = tl.where(is_tap, total + values * factor[None, :], total)
    return total


@triton.jit
def _store_state(
    state, slot, place, mask, values, channels, channel_mask, num_channels, BACK: tl.constexpr
):
    """Store rows of values at places of slots."""
    row = slot.to(tl.int64) * BACK + place
    tl.store(
        state + row[:, None] * num_channels + channels[None, :],
        values,
        mask=mask[:, None] & channel_mask[None, :],
    )


@triton.jit
def _convolve_decode(
    x, weight, state, deltas, plan, first, last, channels, channel_mask, num_channels,
    num_tokens, num_sequences, num_writes,
    TAPS: tl.constexpr, BLOCK_T: tl.constexpr,
    BLOCK_R: tl.constexpr, ALIGNED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Shift the states of one-token sequences; only the token itself can have deltas."""
    BACK: tl.constexpr = TAPS - 1
    rows = first + tl.arange(0, BLOCK_T)
    mask = rows < last
    read = tl.load(plan.read_slots + rows, mask=mask, other=0)
    write = tl.load(plan.write_slots + rows, mask=mask, other=0)
    total = tl.zeros([BLOCK_T, channels.shape[0]], dtype=tl.float32)
    for tap in tl.static_range(TAPS):
        values = _inputs(
            x, state, deltas if tap == BACK else (), rows, rows * 0 + tap - BACK, mask, read,
            channels, channel_mask, num_channels, num_tokens,
            BACK, BLOCK_R, ALIGNED, PRECISION,
        )  # fmt: skip
        factor = tl.load(weight + tap * num_channels + channels, mask=channel_mask, other=0.0)
        if tap == BACK:
            factor += 1.0
        total += values * factor[None, :]
        if tap > 0:
            # Others may still have to read what is overwritten: later taps read later places.
            tl.debug_barrier()
            _store_state(
                state, write, rows * 0 + tap - 1, mask, values,
                channels, channel_mask, num_channels, BACK,
            )  # fmt: skip
    if BACK > 0:
        # A point of a one-token sequence can only be its end.
        place = tl.arange(0, ROWS)
        for extra in range(num_sequences, num_writes):
            sequence = tl.load(plan.write_sequences + extra)
            if (sequence >= first) & (sequence < last):
                tl.debug_barrier()
                source = (tl.load(plan.write_slots + sequence) * BACK + place) * num_channels
                values = tl.load(
                    state + source[:, None] + channels[None, :],
                    mask=(place < BACK)[:, None] & channel_mask[None, :],
                    other=0.0,
                ).to(tl.float32)
                _store_state(
                    state, tl.load(plan.write_slots + extra), place, place < BACK, values,
                    channels, channel_mask, num_channels, BACK,
                )  # fmt: skip
    return total


@triton.jit
def convolve_tile(
    x, weight, state, deltas, plan, first, last, channels, channel_mask, num_channels,
    num_tokens, num_sequences, num_writes,
    IS_DECODE: tl.constexpr, TAPS: tl.constexpr, BLOCK_T: tl.constexpr,
    BLOCK_R: tl.constexpr, ALIGNED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the convolution of a tile, fp32, and write the states of sequences that begin in it.

    Args:
        x: address of the first channel, and row stride.
        weight: [TAPS, num_channels].
        state: [slots, TAPS-1, num_channels].
        deltas: a tuple of `Delta` over all channels.
        plan: `Plan`.
        first: row where the tile begins (`tile_bounds`).
        last: the row behind its last one, above `first`.
        channels: [block].
        channel_mask: [block].
        num_channels: C.
        num_tokens: T.
        num_sequences: B.
        num_writes: states to be written, those of the B sequences' ends first.
        IS_DECODE: whether every sequence has one token.
        TAPS: W.
        BLOCK_T: rows of the result.
        BLOCK_R: see `add_deltas`.
        ALIGNED: likewise.
        PRECISION: likewise.
    """
    if IS_DECODE:
        total = _convolve_decode(
            x, weight, state, deltas, plan, first, last, channels, channel_mask, num_channels,
            num_tokens, num_sequences, num_writes, TAPS, BLOCK_T, BLOCK_R, ALIGNED, PRECISION,
        )  # fmt: skip
    else:
        total = _convolve_prefill(
            x, weight, state, deltas, plan, first, last, channels, channel_mask, num_channels,
            num_tokens, num_sequences, num_writes, TAPS, BLOCK_T, BLOCK_R, ALIGNED, PRECISION,
        )  # fmt: skip
    return total


@triton.jit(do_not_specialize=["num_tokens", "num_sequences", "num_writes"])
def short_conv_kernel(
    y, x, x_stride, weight, state, residual, deltas, plan,
    num_channels, num_tokens, num_sequences, num_writes,
    HAS_RESIDUAL: tl.constexpr, IS_DECODE: tl.constexpr, TAPS: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
    BLOCK_R: tl.constexpr, ALIGNED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Grid (tiles, channel blocks)."""
    first, last = tile_bounds(tl.program_id(0), plan, num_tokens, BLOCK_T, TAPS - 1)
    channels = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    channel_mask = channels < num_channels
    if first < last:
        total = convolve_tile(
            (x, x_stride), weight, state, deltas, plan, first, last, channels, channel_mask,
            num_channels, num_tokens, num_sequences, num_writes,
            IS_DECODE, TAPS, BLOCK_T, BLOCK_R, ALIGNED, PRECISION,
        )  # fmt: skip
        rows = first + tl.arange(0, BLOCK_T)
        places = rows.to(tl.int64)[:, None] * num_channels + channels[None, :]
        mask = (rows < last)[:, None] & channel_mask[None, :]
        if HAS_RESIDUAL:
            total = total.to(y.dtype.element_ty).to(tl.float32)
            total += tl.load(residual + places, mask=mask, other=0.0).to(tl.float32)
        tl.store(y + places, total, mask=mask)


def convolve(
    x: Tensor,
    weight: Tensor,
    state: Tensor,
    plan: ConvPlan,
    residual: Tensor | None,
    pending: Sequence[PendingDelta],
) -> Tensor:
    """Return the convolution of x plus its pending deltas, all of whose parts are all channels."""
    num_tokens, num_channels = x.shape
    taps = weight.shape[0]
    assert x.stride(1) == 1
    assert weight.is_contiguous()
    assert state.is_contiguous()
    block_t, num_warps = block_of(num_tokens)
    y = torch.empty(num_tokens, num_channels, dtype=x.dtype, device=x.device)
    launch(
        short_conv_kernel,
        (num_tiles(num_tokens, block_t, taps), triton.cdiv(num_channels, 64)),
        y,
        x,
        x.stride(0),
        weight,
        state,
        y if residual is None else residual.contiguous(),
        tuple(delta for each in pending for delta in deltas_of(each)),
        plan_of(plan),
        num_channels,
        num_tokens,
        plan.segments.num_sequences,
        len(plan.write_slots),
        HAS_RESIDUAL=residual is not None,
        IS_DECODE=plan.segments.is_decode,
        TAPS=taps,
        BLOCK_T=block_t,
        BLOCK_C=64,
        PRECISION=precision_of(x.dtype),
        **layout_of(part.slots for each in pending for part in each.parts),
        num_warps=num_warps,
        num_stages=1,
    )
    return y


def block_of(num_tokens: int) -> tuple[int, int]:
    """Return rows and warps of a tile."""
    return (16, 4) if num_tokens <= 256 else (32, 8)


def num_tiles(num_tokens: int, block_t: int, taps: int) -> int:
    """Return how many tiles of `tile_bounds` T tokens take."""
    if taps > ROWS.value:
        raise ValueError(f"the convolution has {taps} taps, expected at most {ROWS.value}")
    return triton.cdiv(num_tokens, block_t - (taps - 1))


def plan_of(plan: ConvPlan) -> Plan:
    """Return a plan as kernels take it."""
    return Plan(
        plan.read_slots,
        plan.write_slots,
        plan.write_sequences,
        plan.write_ends,
        plan.segments.sequence_of_token,
        plan.segments.cu_seqlens,
    )


def real_plan(num_sequences: int, length: int) -> ConvPlan:
    """Return a plan for `VARIANTS`."""
    segments = Segments.from_lengths([length] * num_sequences, torch.empty(0).device)
    slots = range(num_sequences)
    return ConvPlan.make(segments, slots, slots)


def _real_conv(num_sequences: int, length: int, rank: int) -> None:
    num_tokens = num_sequences * length
    x, residual = (torch.empty(num_tokens, 6144, dtype=torch.bfloat16) for _ in range(2))
    weight = torch.empty(4, 6144, dtype=torch.float32)
    state = torch.empty(64, 3, 6144, dtype=torch.bfloat16)
    delta = real_pending(num_tokens, 8192, (6144,), rank, 24)
    pending = (delta, delta) if rank else ()
    convolve(x, weight, state, real_plan(num_sequences, length), residual, pending)


VARIANTS = {
    "8 sequences, decode": lambda: _real_conv(8, 1, 0),
    "8 sequences, decode, rank 32": lambda: _real_conv(8, 1, 32),
    "4096 tokens, rank 32": lambda: _real_conv(2, 2048, 32),
}
