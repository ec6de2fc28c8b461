"""The activation of the shared experts: between two products that a library does best.

One launch, with or without adapters: deltas of gate and up, silu(gate) · up · gamma, and the
down site's first product of the columns at hand. One token per program for few tokens, else a
tile of neighbouring tokens, which is multiplied once per adapter that it has.
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_runtime.ops.expert_shrink import GatedShrunk
from inkling_runtime.ops.kernels.expert_lora import expand_gated, shrink_columns
from inkling_runtime.ops.kernels.launch import INTERPRETED, launch
from inkling_runtime.ops.kernels.routed_experts import (
    count_slots,
    gated_arguments,
    gated_constants,
    real_lora,
)
from inkling_runtime.ops.kernels.slots_table import TABLE_COLUMNS, rank_block
from inkling_runtime.ops.lora_slots import GatedLora

MOST_TOKENS = 32
"""With more, tiles are cheaper."""


@triton.jit
def shared_activation_kernel(
    gate_up, gammas, hidden, partial,
    ids, gate_z, up_z, gate_table, gate_scalings, up_table, up_scalings, down_table,
    split_stride, token_stride, width, num_tokens, num_experts, num_slots, num_tiles,
    GATE: tl.constexpr, UP: tl.constexpr, DOWN: tl.constexpr, RANK: tl.constexpr,
    DOWN_RANK: tl.constexpr, DOWN_PARTS: tl.constexpr, SPLITS: tl.constexpr,
    ALIGNED: tl.constexpr, TOKENS: tl.constexpr, COLUMNS: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Write some columns of h of one shared expert, and their part of the down site's product."""
    expert, tile = tl.program_id(1) // num_tiles, tl.program_id(1) % num_tiles
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    mine = token < num_tokens
    column = tile * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    mask = mine[:, None] & inside[None, :]
    row = token.to(tl.int64) * num_experts + expert
    at = gate_up + row[:, None] * (2 * width) + column[None, :]
    gate = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(at + width, mask=mask, other=0.0).to(tl.float32)
    dtype: tl.constexpr = hidden.dtype.element_ty
    adapter = tl.load(ids + token, mask=mine, other=-1)
    gate, up = expand_gated(
        gate, up, adapter, token, tl.zeros((TOKENS,), tl.int32) + expert, gate_z, up_z,
        gate_table, gate_scalings, up_table, up_scalings, num_slots, expert, column, inside,
        split_stride, token_stride, dtype, GATE, UP, TOKENS, RANK, SPLITS, ALIGNED,
    )  # fmt: skip
    gamma = tl.load(gammas + row, mask=mine, other=0.0)
    h = (gate * tl.sigmoid(gate) * up * gamma[:, None]).to(dtype)
    tl.store(hidden + row[:, None] * width + column[None, :], h, mask=mask)
    if DOWN:
        if UPCAST:
            h = h.to(tl.float32)
        at = tl.program_id(1).to(tl.int64) * num_tokens + token
        at = partial + at[:, None] * (DOWN_PARTS * DOWN_RANK) + tl.arange(0, DOWN_RANK)[None, :]
        for slot in range(num_slots):
            own = adapter == slot
            if tl.max(own.to(tl.int32), 0) > 0:
                z = shrink_columns(
                    h, down_table, slot, expert, column, inside, width, dtype, TOKENS,
                    DOWN_RANK, ALIGNED, UPCAST,
                )  # fmt: skip
                # A shared B reads the first part alone, which then has the sum over experts.
                apart = tl.load(down_table + slot * TABLE_COLUMNS + 4) != 0
                part = tl.where(apart, expert, 0)
                for other in tl.static_range(DOWN_PARTS):
                    value = tl.where(part == other, z, 0.0)
                    tl.store(at + other * DOWN_RANK, value, mask=own[:, None])


def activate_shared(
    gate_up: Tensor,
    gammas: Tensor,
    lora: GatedLora | None,
    shrunk: GatedShrunk | None,
    ids: Tensor,
    down_parts: int,
) -> tuple[Tensor, Tensor | None]:
    """Return h [T, S·F], and the down site's first product fp32 [P, T, down_parts · rank block].

    Args:
        gate_up: [T, S, 2F], the products with W1 and W3.
        gammas: [T, S] fp32.
        lora: the slots of the three sites.
        shrunk: the first products of gate and up.
        ids: the adapter slot of each token.
        down_parts: S if an adapter has a B of its own for each shared expert, else 1.
    """
    tokens, num_experts, double_width = gate_up.shape
    width = double_width // 2
    down = lora.down if lora else None
    rank = rank_block([down])
    few = tokens <= MOST_TOKENS
    columns = 128 if few else 64
    num_tiles = triton.cdiv(width, columns)
    num_slots = count_slots(lora)
    hidden = gate_up.new_empty(tokens, num_experts * width)
    shape = (num_experts * num_tiles, tokens, down_parts * rank)
    partial = gate_up.new_empty(shape if down else 0, dtype=torch.float32)
    tile = 1 if few else 16
    launch(
        shared_activation_kernel, (triton.cdiv(tokens, tile), num_experts * num_tiles), gate_up,
        gammas, hidden, partial, ids, *gated_arguments(lora, shrunk, gammas, ids), width, tokens,
        num_experts, num_slots, num_tiles, **gated_constants(lora, shrunk),
        DOWN_PARTS=down_parts, TOKENS=tile, COLUMNS=columns, UPCAST=INTERPRETED,
    )  # fmt: skip
    return hidden, partial if down else None


def _run_real(tokens: int, rank: int) -> None:
    lora = real_lora(2, rank) if rank else None
    z = torch.empty(8 if tokens <= 32 else 2, tokens, 2, rank)
    activate_shared(
        torch.empty(tokens, 2, 6144, dtype=torch.bfloat16),
        torch.empty(tokens, 2),
        lora,
        GatedShrunk(z, z) if rank else None,
        torch.empty(tokens, dtype=torch.int64),
        1,
    )


VARIANTS: dict[str, Callable[[], object]] = {
    "8 tokens, rank 32": lambda: _run_real(8, 32),
    "8192 tokens, rank 128": lambda: _run_real(8192, 128),
}
