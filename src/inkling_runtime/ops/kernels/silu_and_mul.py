"""The gated activation; in a dense MLP also the two LoRA products around it.

The deltas of gate and up are added as they are read, and the first product of the down
projection is summed while its input is at hand: LoRA adds no launch here.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_runtime.ops.kernels.launch import INTERPRETED, launch
from inkling_runtime.ops.kernels.lora_expand import (
    add_deltas,
    layout_of,
    precision_of,
    real_pending,
    real_slots,
    sections_of,
)
from inkling_runtime.ops.kernels.lora_shrink import shrink_tile
from inkling_runtime.ops.kernels.slots_table import MIN_RANK, TABLE_COLUMNS, rank_block
from inkling_runtime.ops.lora_slots import LoraSlots
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.token_adapters import TokenAdapters

MAX_RANK = 128
"""Of the down site, for which its sums fit the registers beside everything else."""
_MAX_SPLITS = 32


@triton.jit
def _shrink_down(
    total, x, table, ids, ranks, features, feature_mask, width,
    ALIGNED: tl.constexpr, PRECISION: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Return total plus A · x of each row's adapter; x is in the model's dtype."""
    first = tl.min(tl.where(ids >= 0, ids, 2147483647))
    for slot in range(first, tl.max(ids) + 1):
        mine = ids == slot
        rank = tl.load(table + slot * TABLE_COLUMNS + 2).to(tl.int32)
        if (tl.max(mine.to(tl.int32)) > 0) & (rank > 0):
            a_factor = tl.load(table + slot * TABLE_COLUMNS).to(tl.pointer_type(x.dtype))
            if ALIGNED:
                a_factor = tl.multiple_of(a_factor, 16)
            own = shrink_tile(
                x, features, feature_mask, a_factor, width, ranks, rank, UPCAST, PRECISION
            )
            total = tl.where(mine[:, None], total + own, total)
    return total


@triton.jit(do_not_specialize=["num_tokens"])
def silu_and_mul_kernel(
    hidden, gate_up, gate_up_stride, scale, deltas, shrunk, down_table, ids,
    num_tokens, width, split_size,
    HAS_DOWN: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_F: tl.constexpr, DOWN_R: tl.constexpr,
    BLOCK_R: tl.constexpr, ALIGNED: tl.constexpr, PRECISION: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Grid (token tiles, splits of the features)."""
    rows = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    row_mask = rows < num_tokens
    split = tl.program_id(1)
    begin = split * split_size
    ranks = tl.arange(0, DOWN_R)
    total = tl.zeros([BLOCK_T, DOWN_R], dtype=tl.float32)
    DTYPE: tl.constexpr = hidden.dtype.element_ty
    if HAS_DOWN:
        own = tl.load(ids + rows, mask=row_mask, other=-1).to(tl.int32)
    for f in range(begin, tl.minimum(begin + split_size, width), BLOCK_F):
        features = f + tl.arange(0, BLOCK_F)
        inside = features < width
        mask = row_mask[:, None] & inside[None, :]
        source = gate_up + rows.to(tl.int64)[:, None] * gate_up_stride + features[None, :]
        gate = tl.load(source, mask=mask, other=0.0).to(tl.float32)
        up = tl.load(source + width, mask=mask, other=0.0).to(tl.float32)
        if len(deltas) > 0:
            gate = add_deltas(
                gate, (deltas[0],), rows, row_mask, features, inside, num_tokens,
                DTYPE, BLOCK_R, ALIGNED, PRECISION,
            )  # fmt: skip
            up = add_deltas(
                up, (deltas[1],), rows, row_mask, features, inside, num_tokens,
                DTYPE, BLOCK_R, ALIGNED, PRECISION,
            )  # fmt: skip
        value = (scale * gate / (1.0 + tl.exp(-gate)) * up).to(DTYPE)
        tl.store(hidden + rows.to(tl.int64)[:, None] * width + features[None, :], value, mask=mask)
        if HAS_DOWN:
            total = _shrink_down(
                total, value, down_table, own, ranks, features, inside, width,
                ALIGNED, PRECISION, UPCAST,
            )  # fmt: skip
    if HAS_DOWN:
        place = (split.to(tl.int64) * num_tokens + rows)[:, None] * DOWN_R + ranks[None, :]
        tl.store(shrunk + place, total, mask=(own >= 0)[:, None] & (ranks < DOWN_R)[None, :])


def activate(
    gate_up: Tensor,
    scale: float,
    pending: PendingDelta | None = None,
    down: LoraSlots | None = None,
    adapters: TokenAdapters | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return the activation [T, F] of gate_up [T, 2F], and A · of the down site, fp32 [P, T, W].

    The second is None without a down site, or if its rank is above `MAX_RANK`.
    """
    assert gate_up.stride(1) == 1
    num_tokens, width = gate_up.shape[0], gate_up.shape[1] // 2
    if down is not None and rank_block([down]) > MAX_RANK:
        down = None
    sites = [part.slots for part in pending.parts] if pending else []
    block_t, tiles = 16, triton.cdiv(num_tokens, 16)
    block_f = 64 if sites or down is not None else 128
    split_size = _split_size(width, tiles, block_f)
    splits = triton.cdiv(width, split_size)
    hidden = torch.empty(num_tokens, width, dtype=gate_up.dtype, device=gate_up.device)
    shrunk = None
    if down is not None:
        sites.append(down)
        shape = (splits, num_tokens, rank_block([down]) or MIN_RANK)
        shrunk = torch.empty(shape, dtype=torch.float32, device=gate_up.device)
    launch(
        silu_and_mul_kernel,
        (tiles, splits),
        hidden,
        gate_up,
        gate_up.stride(0),
        scale,
        sections_of(pending, (0, width)),
        shrunk,
        None if down is None else down.table,
        None if down is None or adapters is None else adapters.ids,
        num_tokens,
        width,
        split_size,
        HAS_DOWN=down is not None,
        BLOCK_T=block_t,
        BLOCK_F=block_f,
        DOWN_R=rank_block([down]) or MIN_RANK,
        PRECISION=precision_of(gate_up.dtype),
        UPCAST=INTERPRETED,
        **layout_of(sites),
        num_stages=1,
    )
    return hidden, shrunk


def _split_size(width: int, tiles: int, block_f: int) -> int:
    """Return the features of one program: many programs for few tokens, few sums for many."""
    splits = max(1, min(_MAX_SPLITS, triton.cdiv(1024, max(1, tiles))))
    return triton.cdiv(triton.cdiv(width, splits), block_f) * block_f


def _real_activation(num_tokens: int, rank: int) -> None:
    gate_up = torch.empty(num_tokens, 49152, dtype=torch.bfloat16)
    if not rank:
        activate(gate_up, 1.0)
        return
    pending = real_pending(num_tokens, 6144, (24576, 24576), rank, 24)
    activate(gate_up, 1.0, pending, real_slots(24576, 6144, rank), pending.adapters)


VARIANTS = {
    "8 tokens": lambda: _real_activation(8, 0),
    "8 tokens, rank 32": lambda: _real_activation(8, 32),
    "8192 tokens, rank 128": lambda: _real_activation(8192, 128),
}
