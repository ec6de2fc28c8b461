"""Everything between the joint projection and attention, in one launch.

A program takes a tile of tokens and one head of keys or values (convolution, norm, cache), or one
head's width of queries or relatives.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_runtime.ops.conv_plan import ConvPlan
from inkling_runtime.ops.kernels.launch import launch
from inkling_runtime.ops.kernels.lora_expand import (
    add_deltas,
    layout_of,
    precision_of,
    real_pending,
    sections_of,
)
from inkling_runtime.ops.kernels.rms_norm import norm_scale
from inkling_runtime.ops.kernels.short_conv import (
    block_of,
    convolve_tile,
    num_tiles,
    plan_of,
    real_plan,
    tile_bounds,
)
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.qkvr_prologue import HeadShape, PrologueState, PrologueWeights


@triton.jit(do_not_specialize=["num_tokens", "num_sequences", "num_writes"])
def qkvr_prologue_kernel(
    q, r, key_cache, value_cache, projected, projected_stride, deltas,
    k_conv, v_conv, q_norm, k_norm, eps, k_state, v_state, slot_mapping, plan,
    num_tokens, num_sequences, num_writes,
    NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    D_REL: tl.constexpr, BLOCK_D: tl.constexpr,
    IS_DECODE: tl.constexpr, TAPS: tl.constexpr, BLOCK_T: tl.constexpr,
    BLOCK_R: tl.constexpr, ALIGNED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Grid (tiles, heads of k, v and q, then as many as r fills)."""
    Q_WIDTH: tl.constexpr = NUM_HEADS * HEAD_DIM
    K_WIDTH: tl.constexpr = NUM_KV_HEADS * HEAD_DIM
    DTYPE: tl.constexpr = q.dtype.element_ty
    first, last = tile_bounds(tl.program_id(0), plan, num_tokens, BLOCK_T, TAPS - 1)
    rows = first + tl.arange(0, BLOCK_T)
    row_mask = rows < last
    lanes = tl.arange(0, BLOCK_D)
    head = tl.program_id(1)
    if first < last:
        if head < 2 * NUM_KV_HEADS:
            is_value = head >= NUM_KV_HEADS
            weight, state, cache = k_conv, k_state, key_cache
            if is_value:
                weight, state, cache = v_conv, v_state, value_cache
            if len(deltas) > 0:
                delta = deltas[1]
                if is_value:
                    delta = deltas[2]
                own = (delta,)
            else:
                own = ()
            channels = (head % NUM_KV_HEADS) * HEAD_DIM + lanes
            source = projected + Q_WIDTH + tl.where(is_value, K_WIDTH, 0)
            values = convolve_tile(
                (source, projected_stride), weight, state, own, plan, first, last,
                channels, lanes < HEAD_DIM, K_WIDTH, num_tokens, num_sequences, num_writes,
                IS_DECODE, TAPS, BLOCK_T, BLOCK_R, ALIGNED, PRECISION,
            ).to(DTYPE).to(tl.float32)  # fmt: skip
            factor = tl.load(k_norm + lanes, mask=lanes < HEAD_DIM, other=0.0).to(tl.float32)
            normed = factor[None, :] * values * norm_scale(values, HEAD_DIM, eps)
            slot = tl.load(slot_mapping + rows, mask=row_mask, other=0)
            tl.store(
                cache + slot[:, None] * K_WIDTH + channels[None, :],
                tl.where(is_value, values, normed),
                mask=row_mask[:, None] & (lanes < HEAD_DIM)[None, :],
            )
        else:
            block = head - 2 * NUM_KV_HEADS
            is_relative = block >= NUM_HEADS
            out, width, source = q, Q_WIDTH + 0, projected
            if is_relative:
                out, width, source = r, NUM_HEADS * D_REL + 0, projected + (Q_WIDTH + 2 * K_WIDTH)
                block -= NUM_HEADS
            features = block * HEAD_DIM + lanes
            inside = (lanes < HEAD_DIM) & (features < width)
            mask = row_mask[:, None] & inside[None, :]
            values = tl.load(
                source + rows.to(tl.int64)[:, None] * projected_stride + features[None, :],
                mask=mask,
                other=0.0,
            ).to(tl.float32)
            if len(deltas) > 0:
                delta = deltas[0]
                if is_relative:
                    delta = deltas[3]
                values = add_deltas(
                    values, (delta,), rows, row_mask, features, inside, num_tokens,
                    DTYPE, BLOCK_R, ALIGNED, PRECISION,
                )  # fmt: skip
            factor = tl.load(q_norm + lanes, mask=lanes < HEAD_DIM, other=0.0).to(tl.float32)
            normed = factor[None, :] * values * norm_scale(values, HEAD_DIM, eps)
            tl.store(
                out + rows.to(tl.int64)[:, None] * width + features[None, :],
                tl.where(is_relative, values, normed),
                mask=mask,
            )


def prepare(
    projected: Tensor,
    pending: PendingDelta | None,
    shape: HeadShape,
    weights: PrologueWeights,
    state: PrologueState,
    plan: ConvPlan,
    slot_mapping: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return q and r; see `qkvr_prologue`. Each part of the delta is all of q, k, v or r."""
    num_tokens, taps = projected.shape[0], weights.k_conv.shape[0]
    for kept in (weights.k_conv, weights.v_conv, state.k_conv, state.v_conv):
        assert kept.is_contiguous()
    assert state.key_cache.is_contiguous()
    assert state.value_cache.is_contiguous()
    assert projected.stride(1) == 1
    like = {"dtype": projected.dtype, "device": projected.device}
    q = torch.empty(num_tokens, shape.num_heads, shape.head_dim, **like)
    r = torch.empty(num_tokens, shape.num_heads, shape.d_rel, **like)
    block_t, num_warps = block_of(num_tokens)
    relative_blocks = triton.cdiv(shape.num_heads * shape.d_rel, shape.head_dim)
    launch(
        qkvr_prologue_kernel,
        (
            num_tiles(num_tokens, block_t, taps),
            shape.num_heads + 2 * shape.num_kv_heads + relative_blocks,
        ),
        q,
        r,
        state.key_cache,
        state.value_cache,
        projected,
        projected.stride(0),
        sections_of(pending, shape.starts),
        weights.k_conv,
        weights.v_conv,
        weights.q_norm,
        weights.k_norm,
        weights.eps,
        state.k_conv,
        state.v_conv,
        slot_mapping,
        plan_of(plan),
        num_tokens,
        plan.segments.num_sequences,
        len(plan.write_slots),
        NUM_HEADS=shape.num_heads,
        NUM_KV_HEADS=shape.num_kv_heads,
        HEAD_DIM=shape.head_dim,
        D_REL=shape.d_rel,
        BLOCK_D=max(16, triton.next_power_of_2(shape.head_dim)),
        IS_DECODE=plan.segments.is_decode,
        TAPS=taps,
        BLOCK_T=block_t,
        PRECISION=precision_of(projected.dtype),
        **layout_of(part.slots for part in (pending.parts if pending else ())),
        num_warps=num_warps,
        num_stages=1,
    )
    return q, r


def _real_prologue(num_sequences: int, length: int, rank: int) -> None:
    num_tokens, shape = num_sequences * length, HeadShape(64, 16, 128, 16)

    def bf16(*sizes: int) -> Tensor:
        return torch.empty(sizes, dtype=torch.bfloat16)

    cache, state = (64, 64, 16, 128), (64, 3, 2048)
    prepare(
        bf16(num_tokens, sum(shape.widths)),
        real_pending(num_tokens, 6144, shape.widths, rank, 24) if rank else None,
        shape,
        PrologueWeights(torch.empty(4, 2048), torch.empty(4, 2048), bf16(128), bf16(128), 1e-6),
        PrologueState(bf16(*state), bf16(*state), bf16(*cache), bf16(*cache)),
        real_plan(num_sequences, length),
        torch.empty(num_tokens, dtype=torch.int64),
    )


VARIANTS = {
    "8 sequences, decode": lambda: _real_prologue(8, 1, 0),
    "8 sequences, decode, rank 32": lambda: _real_prologue(8, 1, 32),
    "4096 tokens, rank 32": lambda: _real_prologue(2, 2048, 32),
}
