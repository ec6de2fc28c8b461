"""The first LoRA product A · x of several sites of one input, in one launch.

A program takes a tile of tokens, a part of the input features and some ranks of one site; it
makes one product per adapter that its tokens have. Nothing is sorted, and partial sums are stored
side by side, so that their order is always the same.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_runtime.ops.kernels.launch import INTERPRETED, launch
from inkling_runtime.ops.kernels.lora_expand import real_slots
from inkling_runtime.ops.kernels.slots_table import (
    MIN_RANK,
    TABLE_COLUMNS,
    are_aligned,
    rank_block,
)
from inkling_runtime.ops.lora_slots import LoraSlots

_TARGET_PROGRAMS = 512
_MIN_SPLIT = 256
_MAX_SPLITS = 32


@triton.jit
def shrink_tile(
    x, features, feature_mask, a_factor, in_features, ranks, rank,
    UPCAST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return x · Aᵀ, fp32 [rows, ranks], of a tile x [rows, features] in the model's dtype."""
    a = tl.load(
        a_factor + ranks[:, None] * in_features + features[None, :],
        mask=(ranks < rank)[:, None] & feature_mask[None, :],
        other=0.0,
    )
    if UPCAST:
        x, a = x.to(tl.float32), a.to(tl.float32)
    return tl.dot(x, tl.trans(a), input_precision=PRECISION)


@triton.jit(do_not_specialize=["num_tokens"])
def lora_shrink_kernel(
    out, x, x_stride, ids, tables, num_tokens, in_features, width, split_size,
    RANK_BLOCKS: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_R: tl.constexpr, ALIGNED: tl.constexpr, PRECISION: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Write partial sums; grid (token tiles, splits, sites · rank blocks)."""
    rows = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    row_mask = rows < num_tokens
    split = tl.program_id(1)
    site = tl.program_id(2) // RANK_BLOCKS
    ranks = (tl.program_id(2) % RANK_BLOCKS) * BLOCK_R + tl.arange(0, BLOCK_R)
    table = tables[0]
    for i in tl.static_range(1, len(tables)):
        if site == i:
            table = tables[i]
    begin = split * split_size
    end = tl.minimum(begin + split_size, in_features)
    tokens = tl.load(ids + rows, mask=row_mask, other=-1).to(tl.int32)
    first = tl.min(tl.where(tokens >= 0, tokens, 2147483647))
    last = tl.max(tokens)
    for slot in range(first, last + 1):
        mine = tokens == slot
        rank = tl.load(table + slot * TABLE_COLUMNS + 2).to(tl.int32)
        if (tl.max(mine.to(tl.int32)) > 0) & (tl.min(ranks) < rank):
            address = tl.load(table + slot * TABLE_COLUMNS)
            a_factor = address.to(tl.pointer_type(x.dtype.element_ty))
            if ALIGNED:
                a_factor = tl.multiple_of(a_factor, 16)
            total = tl.zeros([BLOCK_T, BLOCK_R], dtype=tl.float32)
            for k in range(begin, end, BLOCK_K):
                features = k + tl.arange(0, BLOCK_K)
                inside = features < end
                tile = tl.load(
                    x + rows.to(tl.int64)[:, None] * x_stride + features[None, :],
                    mask=mine[:, None] & inside[None, :],
                    other=0.0,
                )
                total += shrink_tile(
                    tile, features, inside, a_factor, in_features, ranks, rank,
                    UPCAST, PRECISION,
                )  # fmt: skip
            place = (split.to(tl.int64) * num_tokens + rows)[:, None] * width
            place += tl.program_id(2) * BLOCK_R + tl.arange(0, BLOCK_R)[None, :]
            tl.store(out + place, total, mask=mine[:, None] & (ranks < rank)[None, :])


def shrink(x: Tensor, ids: Tensor, sites: Sequence[LoraSlots]) -> tuple[Tensor, tuple[int, ...]]:
    """Return partial sums fp32 [P, T, W] and the first column of each site."""
    assert x.stride(1) == 1
    num_tokens, in_features = x.shape
    width = rank_block(sites) or MIN_RANK
    block_r, block_t = min(width, 64), 16 if num_tokens <= 512 else 64
    block_k = 128 if block_t == 16 else 64
    rank_blocks, tiles = width // block_r, triton.cdiv(num_tokens, block_t)
    split_size = _split_size(in_features, tiles * len(sites) * rank_blocks, block_k)
    splits = triton.cdiv(in_features, split_size)
    values = torch.empty(
        splits, num_tokens, len(sites) * width, dtype=torch.float32, device=x.device
    )
    launch(
        lora_shrink_kernel,
        (tiles, splits, len(sites) * rank_blocks),
        values,
        x,
        x.stride(0),
        ids,
        tuple(slots.table for slots in sites),
        num_tokens,
        in_features,
        len(sites) * width,
        split_size,
        RANK_BLOCKS=rank_blocks,
        BLOCK_T=block_t,
        BLOCK_K=block_k,
        BLOCK_R=block_r,
        ALIGNED=are_aligned(sites),
        PRECISION="ieee" if x.dtype == torch.float32 else "tf32",
        UPCAST=INTERPRETED,
        num_stages=3,
    )
    return values, tuple(width * i for i in range(len(sites)))


def _split_size(in_features: int, programs: int, block_k: int) -> int:
    """Return the input features of one program, so that a small batch still fills the device."""
    splits = min(
        _MAX_SPLITS,
        max(1, in_features // _MIN_SPLIT),
        max(1, triton.cdiv(_TARGET_PROGRAMS, programs)),
    )
    return triton.cdiv(triton.cdiv(in_features, splits), block_k) * block_k


def _real_shrink(num_tokens: int, rank: int, sites: int) -> None:
    x = torch.empty(num_tokens, 6144, dtype=torch.bfloat16)
    ids = torch.empty(num_tokens, dtype=torch.int64)
    shrink(x, ids, [real_slots(6144, 8192, rank)] * sites)


VARIANTS = {
    "1 token, 4 sites, rank 32": lambda: _real_shrink(1, 32, 4),
    "8192 tokens, 1 site, rank 128": lambda: _real_shrink(8192, 128, 1),
}
