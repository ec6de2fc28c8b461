"""The routed experts of few tokens: one program per route and rows, no sort.

Two launches, with or without adapters: the first multiplies by W1 and W3, adds the deltas of gate
and up and leaves h = silu(gate) · up; the second adds up the experts of a token. The down site's
first product is summed up by the first kernel for the rows of h it has, and where B is shared by
all experts one more program per token in the second adds these partial sums: their product with B
is left to whoever reads y. Routes are the fast axis of the first grid, so that tokens with the
same expert read its weight from the cache.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_runtime.ops.expert_shrink import GatedShrunk
from inkling_runtime.ops.kernels.expert_lora import add_expanded, load_site, shrink_columns
from inkling_runtime.ops.kernels.grouped_gemm import row_product, weight_pointers
from inkling_runtime.ops.kernels.launch import INTERPRETED, launch
from inkling_runtime.ops.kernels.slots_table import TABLE_COLUMNS, are_aligned, rank_block
from inkling_runtime.ops.lora_pair import LoraPair
from inkling_runtime.ops.lora_slots import GatedLora, LoraSlots
from inkling_runtime.ops.nvfp4 import Nvfp4Weight

MOST_ROUTES = 128
"""With more, so many routes share an expert that tiles are cheaper."""

GATE_UP_ROWS, DOWN_ROWS = 16, 8


@triton.jit
def gate_up_routes_kernel(
    x, weight, scales, scales2, expert_ids, route_weights, hidden, partial,
    ids, gate_z, up_z, gate_table, gate_scalings, up_table, up_scalings, down_table,
    split_stride, token_stride, hidden_size, width,
    TOP_K: tl.constexpr, GATE: tl.constexpr, UP: tl.constexpr, DOWN: tl.constexpr,
    RANK: tl.constexpr, DOWN_RANK: tl.constexpr, SPLITS: tl.constexpr, ALIGNED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, NVFP4: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Write some columns of h of one route, and their part of the down site's first product."""
    route, tile = tl.program_id(0), tl.program_id(1)
    token, copy = route // TOP_K, route % TOP_K
    expert = tl.load(expert_ids + route)
    if expert >= 0:
        # Rows of gate and up alternate, so that the two can be split where they are.
        both = tl.arange(0, 2 * ROWS)
        column = tile * ROWS + both // 2
        product = row_product(
            x + token.to(tl.int64) * hidden_size, weight, scales, scales2, expert,
            (both % 2) * width + column, column < width, 2 * width, hidden_size,
            2 * ROWS, COLUMNS, NVFP4,
        )  # fmt: skip
        gate, up = tl.split(tl.reshape(product, (1, ROWS, 2)))
        column = tile * ROWS + tl.arange(0, ROWS)
        inside = column < width
        dtype: tl.constexpr = x.dtype.element_ty
        slot = tl.load(ids + token)
        one = tl.zeros((1,), tl.int32)
        mine = one == 0
        if slot >= 0:
            if GATE:
                gate = add_expanded(
                    gate, mine, gate_z, one + token, one + copy, gate_table, gate_scalings,
                    slot, expert, column, inside, split_stride, token_stride, SPLITS, dtype, 1,
                    RANK, ALIGNED,
                )  # fmt: skip
            if UP:
                up = add_expanded(
                    up, mine, up_z, one + token, one + copy, up_table, up_scalings, slot,
                    expert, column, inside, split_stride, token_stride, SPLITS, dtype, 1, RANK,
                    ALIGNED,
                )  # fmt: skip
        h = (gate * tl.sigmoid(gate) * up).to(dtype)
        row = route.to(tl.int64) * width
        tl.store(hidden + row + column[None, :], h, mask=inside[None, :])
        if DOWN and slot >= 0:
            if UPCAST:
                h = h.to(tl.float32)
            z = shrink_columns(
                h, down_table, slot, expert, column, inside, width, dtype, 1, DOWN_RANK, ALIGNED,
                UPCAST,
            )  # fmt: skip
            place = tile.to(tl.int64) * tl.num_programs(0) + route
            feature = tl.arange(0, DOWN_RANK)[None, :]
            tl.store(partial + place * DOWN_RANK + feature, z * tl.load(route_weights + route))


@triton.jit
def sum_partial(
    partial, route, num_routes, num_tiles, RANK: tl.constexpr, TILES: tl.constexpr
):  # fmt: skip
    """Return the down site's first product of one route, fp32 [RANK]."""
    total = tl.zeros((TILES, RANK), tl.float32)
    feature = tl.arange(0, RANK)
    for first in range(0, num_tiles, TILES):
        tile = first + tl.arange(0, TILES)
        row = tile.to(tl.int64) * num_routes + route
        total += tl.load(
            partial + row[:, None] * RANK + feature[None, :],
            mask=(tile < num_tiles)[:, None],
            other=0.0,
        )
    return tl.sum(total, 0)


@triton.jit
def write_shared_down(
    partial, shrunk, expert_ids, ids, table, token, num_routes, num_tiles,
    TOP_K: tl.constexpr, RANK: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Write what a shared B is multiplied by: the sum over a token's routes, else zeros."""
    slot = tl.load(ids + token)
    total = tl.zeros((RANK,), tl.float32)
    if slot >= 0:
        entry = table + slot * TABLE_COLUMNS
        if (tl.load(entry + 2) > 0) & (tl.load(entry + 4) == 0):
            for k in range(TOP_K):
                route = token * TOP_K + k
                if tl.load(expert_ids + route) >= 0:
                    total += sum_partial(partial, route, num_routes, num_tiles, RANK, TILES)
    tl.store(shrunk + token * RANK + tl.arange(0, RANK), total)


@triton.jit
def down_routes_kernel(
    hidden, weight, scales, scales2, expert_ids, route_weights, y, partial, shrunk, ids, table,
    scalings, hidden_size, width, num_tiles,
    TOP_K: tl.constexpr, DOWN: tl.constexpr, RANK: tl.constexpr, TILES: tl.constexpr,
    ALIGNED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, NVFP4: tl.constexpr,
):  # fmt: skip
    """Write some columns of y of one token; the first program per token sums up z if there is."""
    token = tl.program_id(1)
    tile = tl.program_id(0) - DOWN
    num_routes = tl.num_programs(1) * TOP_K
    if DOWN and tile < 0:
        write_shared_down(
            partial, shrunk, expert_ids, ids, table, token, num_routes, num_tiles, TOP_K, RANK,
            TILES,
        )  # fmt: skip
    else:
        row = tile * ROWS + tl.arange(0, ROWS)
        inside = row < hidden_size
        total = tl.zeros((ROWS,), tl.float32)
        for k in range(TOP_K):
            route = token * TOP_K + k
            expert = tl.load(expert_ids + route)
            if expert >= 0:
                product = row_product(
                    hidden + route.to(tl.int64) * width, weight, scales, scales2, expert, row,
                    inside, hidden_size, width, ROWS, COLUMNS, NVFP4,
                )  # fmt: skip
                total += tl.load(route_weights + route) * product
        if DOWN:
            slot = tl.load(ids + token)
            if slot >= 0:
                entry = table + slot * TABLE_COLUMNS
                if (tl.load(entry + 2) > 0) & (tl.load(entry + 4) != 0):
                    dtype: tl.constexpr = hidden.dtype.element_ty
                    for k in range(TOP_K):
                        route = token * TOP_K + k
                        expert = tl.load(expert_ids + route)
                        if expert >= 0:
                            z = sum_partial(partial, route, num_routes, num_tiles, RANK, TILES)
                            b, rank = load_site(table, slot, expert, 1, dtype, ALIGNED)
                            feature = tl.arange(0, RANK)
                            factor = tl.load(
                                b + row[:, None] * rank + feature[None, :],
                                mask=inside[:, None] & (feature < rank)[None, :],
                                other=0.0,
                            )
                            delta = tl.sum(factor.to(tl.float32) * z[None, :], 1)
                            total += delta * tl.load(scalings + slot)
        at = y + token.to(tl.int64) * hidden_size + row
        tl.store(at, total.to(y.dtype.element_ty), mask=inside)


def run_routes(
    x: Tensor,
    w13: Tensor | Nvfp4Weight,
    w2: Tensor | Nvfp4Weight,
    expert_ids: Tensor,
    expert_weights: Tensor,
    lora: GatedLora | None,
    shrunk: GatedShrunk | None,
    ids: Tensor,
) -> tuple[Tensor, Tensor | None]:
    """Return y [T, H], and what a shared down B is still to be multiplied by, [1, T, rank block].

    Args:
        x: [T, H], with T·K ≤ `MOST_ROUTES` for speed.
        w13: [E, 2F, H].
        w2: [E, H, F].
        expert_ids: [T, K], -1 for an expert that is not here.
        expert_weights: [T, K] fp32.
        lora: the slots of the three sites.
        shrunk: the first products of gate and up.
        ids: the adapter slot of each token.
    """
    tokens, hidden_size = x.shape
    top_k, width = expert_ids.shape[1], w2.shape[2]
    routes, num_tiles = expert_ids.numel(), triton.cdiv(width, GATE_UP_ROWS)
    down = lora.down if lora else None
    rank = rank_block([down])
    hidden = x.new_empty(routes, width)
    partial = x.new_empty((num_tiles if down else 0, routes, rank), dtype=torch.float32)
    launch(
        gate_up_routes_kernel, (routes, num_tiles), x, *weight_pointers(w13), expert_ids,
        expert_weights, hidden, partial, ids, *gated_arguments(lora, shrunk, expert_weights, ids),
        hidden_size, width, TOP_K=top_k, **gated_constants(lora, shrunk),
        ROWS=GATE_UP_ROWS, COLUMNS=256, NVFP4=isinstance(w13, Nvfp4Weight), UPCAST=INTERPRETED,
        num_stages=3,
    )  # fmt: skip
    y = torch.empty_like(x)
    summed = x.new_empty((1, tokens, rank), dtype=torch.float32) if down else None
    launch(
        down_routes_kernel, (triton.cdiv(hidden_size, DOWN_ROWS) + bool(down), tokens), hidden,
        *weight_pointers(w2), expert_ids, expert_weights, y, partial,
        partial if summed is None else summed, ids, *site_arguments(down, expert_weights, ids),
        hidden_size, width, num_tiles, TOP_K=top_k, DOWN=int(bool(down)), RANK=rank,
        ALIGNED=are_aligned([down]), TILES=tiles_at_once(num_tiles, rank), ROWS=DOWN_ROWS,
        COLUMNS=512, NVFP4=isinstance(w2, Nvfp4Weight), num_stages=3,
    )  # fmt: skip
    return y, summed


def tiles_at_once(num_tiles: int, rank: int) -> int:
    """Return how many partial sums of a route a program loads at a time."""
    return max(1, min(1024 // max(rank, 1), triton.next_power_of_2(num_tiles)))


def site_arguments(slots: LoraSlots | None, floats: Tensor, ints: Tensor) -> tuple[Tensor, Tensor]:
    """Return the table and scalings of a site; tensors that are not read where there is none."""
    return (slots.table, slots.scalings) if slots else (ints, floats)


def gated_arguments(
    lora: GatedLora | None, shrunk: GatedShrunk | None, floats: Tensor, ints: Tensor
) -> tuple[Any, ...]:
    """Return what kernels with a gated activation take of its three sites, from `gate_z` on."""
    gate, up, down = (lora.gate, lora.up, lora.down) if lora else (None, None, None)
    gate_z, up_z = (shrunk.gate, shrunk.up) if shrunk else (None, None)
    some = next((z for z in (gate_z, up_z) if z is not None), None)
    return (
        floats if gate_z is None else gate_z,
        floats if up_z is None else up_z,
        *site_arguments(gate, floats, ints),
        *site_arguments(up, floats, ints),
        site_arguments(down, floats, ints)[0],
        *((0, 0) if some is None else some.stride()[:2]),
    )


def count_slots(lora: GatedLora | None) -> int:
    """Return how many adapter slots there are, 0 without any site."""
    sites = (lora.gate, lora.up, lora.down) if lora else ()
    return max((len(slots) for slots in sites if slots), default=0)


def gated_constants(lora: GatedLora | None, shrunk: GatedShrunk | None) -> dict[str, Any]:
    """Return the constants that go with `gated_arguments`."""
    gate_z, up_z = (shrunk.gate, shrunk.up) if shrunk else (None, None)
    some = next((z for z in (gate_z, up_z) if z is not None), None)
    return {
        "GATE": gate_z is not None,
        "UP": up_z is not None,
        "DOWN": bool(lora and lora.down),
        "RANK": 0 if some is None else some.shape[3],
        "SPLITS": 0 if some is None else some.shape[0],
        "DOWN_RANK": rank_block([lora.down]) if lora else 0,
        "ALIGNED": lora is None or are_aligned((lora.gate, lora.up, lora.down)),
    }


def real_experts(
    packed: bool, experts: int = 256
) -> tuple[Tensor | Nvfp4Weight, Tensor | Nvfp4Weight]:
    """Return W13 and W2 of real size, for `VARIANTS`."""
    shapes = ((experts, 6144, 6144), (experts, 6144, 3072))
    return tuple(_real_packed(*shape) if packed else _real(*shape) for shape in shapes)


def real_lora(experts: int, rank: int = 32, width: int = 3072) -> GatedLora:
    """Return shared-outer bf16 factors of real size in four slots, for `VARIANTS`."""
    outer = LoraPair(_real(1, rank, 6144), _real(experts, width, rank), 1.0)
    down = LoraPair(_real(experts, rank, width), _real(1, 6144, rank), 1.0)
    gate, last = (LoraSlots([pair] * 4, pair.a.device) for pair in (outer, down))
    return GatedLora(gate, gate, last)


def _real(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.bfloat16)


def _real_packed(experts: int, rows: int, columns: int) -> Nvfp4Weight:
    return Nvfp4Weight(
        torch.empty(experts, rows, columns // 2, dtype=torch.uint8),
        torch.empty(experts, rows, columns // 16, dtype=torch.float8_e4m3fn),
        torch.empty(experts),
    )


def run_real(run: Callable[..., object], tokens: int, rank: int = 0, packed: bool = False) -> None:
    """Call `run_routes`, or what is called like it, at real sizes; rank 0: without adapters."""
    lora = real_lora(256, rank) if rank else None
    z = torch.empty(8 if tokens <= 32 else 2, tokens, 6, rank)
    run(
        _real(tokens, 6144),
        *real_experts(packed),
        torch.empty(tokens, 6, dtype=torch.int64),
        torch.empty(tokens, 6),
        lora,
        GatedShrunk(z, z) if rank else None,
        torch.empty(tokens, dtype=torch.int64),
    )


VARIANTS: dict[str, Callable[[], object]] = {
    "8 tokens, rank 32": lambda: run_real(run_routes, 8, 32),
    "1 token, rank 128, NVFP4": lambda: run_real(run_routes, 1, 128, packed=True),
}
