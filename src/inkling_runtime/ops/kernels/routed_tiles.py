"""The routed experts of many tokens: a grouped product over tiles of sorted routes.

Three launches: h of all routes in sorted order, the products with W2 in the order of the routes,
their sum per token. LoRA adds none: a tile may hold any mix of adapters, each of which is
expanded for its own rows once the tile's product is done. What is left to whoever reads y is the
same as for few tokens (`kernels.routed_experts`).

Tiles are the fast axis of the grids: tiles of one expert lie next to each other and read the
same rows of its weight at the same time.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_runtime.ops.expert_shrink import GatedShrunk
from inkling_runtime.ops.kernels.expert_lora import add_expanded, expand_gated, shrink_columns
from inkling_runtime.ops.kernels.grouped_gemm import (
    find_tile,
    sort_routes,
    tile_product,
    weight_pointers,
)
from inkling_runtime.ops.kernels.launch import INTERPRETED, launch
from inkling_runtime.ops.kernels.routed_experts import (
    count_slots,
    gated_arguments,
    gated_constants,
    run_real,
    site_arguments,
    tiles_at_once,
    write_shared_down,
)
from inkling_runtime.ops.kernels.slots_table import TABLE_COLUMNS, are_aligned, rank_block
from inkling_runtime.ops.lora_slots import GatedLora
from inkling_runtime.ops.nvfp4 import Nvfp4Weight


@triton.jit
def gate_up_tiles_kernel(
    x, weight, scales, scales2, order, starts, tile_ends, route_weights, hidden, partial,
    ids, gate_z, up_z, gate_table, gate_scalings, up_table, up_scalings, down_table,
    split_stride, token_stride, hidden_size, width, num_routes, num_experts, num_slots,
    TOP_K: tl.constexpr, GATE: tl.constexpr, UP: tl.constexpr, DOWN: tl.constexpr,
    RANK: tl.constexpr, DOWN_RANK: tl.constexpr, SPLITS: tl.constexpr, ALIGNED: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, EXPERTS: tl.constexpr, NVFP4: tl.constexpr,
    UPCAST: tl.constexpr,
):  # fmt: skip
    """Write some columns of h of a tile, and their part of the down site's first product."""
    expert, place, mine, route = find_tile(
        order, starts, tile_ends, tl.program_id(0), num_experts, TOKENS, EXPERTS
    )
    if tl.max(mine.to(tl.int32), 0) > 0:
        tile = tl.program_id(1)
        token, copy = route // TOP_K, route % TOP_K
        # Rows of gate and up alternate, so that the two can be split where they are.
        both = tl.arange(0, 2 * ROWS)
        column = tile * ROWS + both // 2
        product = tile_product(
            x, token, mine, weight, scales, scales2, expert, (both % 2) * width + column,
            column < width, 2 * width, hidden_size, TOKENS, 2 * ROWS, COLUMNS, NVFP4, UPCAST,
        )  # fmt: skip
        gate, up = tl.split(tl.reshape(product, (TOKENS, ROWS, 2)))
        column = tile * ROWS + tl.arange(0, ROWS)
        inside = column < width
        dtype: tl.constexpr = x.dtype.element_ty
        adapter = tl.load(ids + token, mask=mine, other=-1)
        gate, up = expand_gated(
            gate, up, adapter, token, copy, gate_z, up_z, gate_table, gate_scalings, up_table,
            up_scalings, num_slots, expert, column, inside, split_stride, token_stride, dtype,
            GATE, UP, TOKENS, RANK, SPLITS, ALIGNED,
        )  # fmt: skip
        h = (gate * tl.sigmoid(gate) * up).to(dtype)
        at = hidden + place[:, None] * width + column[None, :]
        tl.store(at, h, mask=mine[:, None] & inside[None, :])
        if DOWN:
            if UPCAST:
                h = h.to(tl.float32)
            share = tl.load(route_weights + route, mask=mine, other=0.0)
            feature = tl.arange(0, DOWN_RANK)[None, :]
            at = partial + (tile.to(tl.int64) * num_routes + route)[:, None] * DOWN_RANK + feature
            for slot in range(num_slots):
                own = adapter == slot
                if tl.max(own.to(tl.int32), 0) > 0:
                    z = shrink_columns(
                        h, down_table, slot, expert, column, inside, width, dtype, TOKENS,
                        DOWN_RANK, ALIGNED, UPCAST,
                    )  # fmt: skip
                    tl.store(at, z * share[:, None], mask=own[:, None])


@triton.jit
def down_tiles_kernel(
    hidden, weight, scales, scales2, order, starts, tile_ends, route_weights, products, partial,
    ids, table, scalings, hidden_size, width, num_routes, num_experts, num_slots, num_tiles,
    TOP_K: tl.constexpr, DOWN: tl.constexpr, RANK: tl.constexpr, ALIGNED: tl.constexpr,
    TOKENS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EXPERTS: tl.constexpr,
    NVFP4: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Write some columns of the weighted products of a tile with W2, in the order of routes."""
    expert, place, mine, route = find_tile(
        order, starts, tile_ends, tl.program_id(0), num_experts, TOKENS, EXPERTS
    )
    if tl.max(mine.to(tl.int32), 0) > 0:
        row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
        inside = row < hidden_size
        product = tile_product(
            hidden, place, mine, weight, scales, scales2, expert, row, inside, hidden_size, width,
            TOKENS, ROWS, COLUMNS, NVFP4, UPCAST,
        )  # fmt: skip
        product *= tl.load(route_weights + route, mask=mine, other=0.0)[:, None]
        if DOWN:
            dtype: tl.constexpr = hidden.dtype.element_ty
            adapter = tl.load(ids + route // TOP_K, mask=mine, other=-1)
            for slot in range(num_slots):
                own = adapter == slot
                apart = tl.load(table + slot * TABLE_COLUMNS + 4) != 0
                if apart & (tl.max(own.to(tl.int32), 0) > 0):
                    product = add_expanded(
                        product, own, partial, route, tl.zeros((TOKENS,), tl.int32), table,
                        scalings, slot, expert, row, inside, num_routes * RANK, RANK, num_tiles,
                        dtype, TOKENS, RANK, ALIGNED,
                    )  # fmt: skip
        at = products + route[:, None] * hidden_size + row[None, :]
        tl.store(at, product.to(products.dtype.element_ty), mask=mine[:, None] & inside[None, :])


@triton.jit
def sum_routes_kernel(
    products, y, partial, shrunk, expert_ids, ids, table, hidden_size, num_tiles,
    TOP_K: tl.constexpr, DOWN: tl.constexpr, RANK: tl.constexpr, TILES: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write some columns of y of one token; the first program per token sums up z if there is."""
    token, tile = tl.program_id(0), tl.program_id(1) - DOWN
    if DOWN and tile < 0:
        num_routes = tl.num_programs(0) * TOP_K
        write_shared_down(
            partial, shrunk, expert_ids, ids, table, token, num_routes, num_tiles, TOP_K, RANK,
            TILES,
        )  # fmt: skip
    else:
        column = tile * COLUMNS + tl.arange(0, COLUMNS)
        inside = column < hidden_size
        total = tl.zeros((COLUMNS,), tl.float32)
        own = products + token.to(tl.int64) * TOP_K * hidden_size + column
        for k in range(TOP_K):
            width = tl.where(tl.load(expert_ids + token * TOP_K + k) >= 0, hidden_size, 0)
            here = column < width
            total += tl.load(own + k * hidden_size, mask=here, other=0.0).to(tl.float32)
        at = y + token.to(tl.int64) * hidden_size + column
        tl.store(at, total.to(y.dtype.element_ty), mask=inside)


def run_tiles(
    x: Tensor,
    w13: Tensor | Nvfp4Weight,
    w2: Tensor | Nvfp4Weight,
    expert_ids: Tensor,
    expert_weights: Tensor,
    lora: GatedLora | None,
    shrunk: GatedShrunk | None,
    ids: Tensor,
) -> tuple[Tensor, Tensor | None]:
    """Return what `kernels.routed_experts.run_routes` does, for any number of tokens."""
    tokens, hidden_size = x.shape
    num_experts, _, width = w2.shape
    routes = expert_ids.numel()
    sizes = _tile_sizes(routes / num_experts, isinstance(w13, Nvfp4Weight))
    tiles = sort_routes(expert_ids, num_experts, sizes["TOKENS"])
    sorted_routes = (tiles.order, tiles.starts, tiles.tile_ends)
    num_tiles = triton.cdiv(width, sizes["ROWS"] // 2)
    down = lora.down if lora else None
    rank = rank_block([down])
    num_slots = count_slots(lora)
    constants = {
        "TOP_K": expert_ids.shape[1],
        "EXPERTS": triton.next_power_of_2(num_experts),
        "UPCAST": INTERPRETED,
        **{name: sizes[name] for name in ("TOKENS", "COLUMNS", "num_warps", "num_stages")},
    }
    hidden = x.new_empty(routes, width)
    partial = x.new_empty((num_tiles if down else 0, routes, rank), dtype=torch.float32)
    launch(
        gate_up_tiles_kernel, (tiles.most_tiles, num_tiles), x, *weight_pointers(w13),
        *sorted_routes, expert_weights, hidden, partial, ids,
        *gated_arguments(lora, shrunk, expert_weights, ids), hidden_size, width, routes,
        num_experts, num_slots, **gated_constants(lora, shrunk),
        ROWS=sizes["ROWS"] // 2, NVFP4=isinstance(w13, Nvfp4Weight), **constants,
    )  # fmt: skip
    products, y = x.new_empty(routes, hidden_size), torch.empty_like(x)
    site = site_arguments(down, expert_weights, ids)
    launch(
        down_tiles_kernel, (tiles.most_tiles, triton.cdiv(hidden_size, sizes["ROWS"])), hidden,
        *weight_pointers(w2), *sorted_routes, expert_weights, products, partial, ids, *site,
        hidden_size, width, routes, num_experts, num_slots, num_tiles, DOWN=bool(down), RANK=rank,
        ALIGNED=are_aligned([down]),
        ROWS=sizes["ROWS"], NVFP4=isinstance(w2, Nvfp4Weight), **constants,
    )  # fmt: skip
    summed = x.new_empty((1, tokens, rank), dtype=torch.float32) if down else None
    launch(
        sum_routes_kernel, (tokens, triton.cdiv(hidden_size, 1024) + bool(down)), products, y,
        partial, partial if summed is None else summed, expert_ids, ids, site[0], hidden_size,
        num_tiles, TOP_K=constants["TOP_K"], DOWN=int(bool(down)), RANK=rank,
        TILES=tiles_at_once(num_tiles, rank), COLUMNS=1024,
    )  # fmt: skip
    return y, summed


def _tile_sizes(routes_per_expert: float, packed: bool) -> dict[str, Any]:
    """Return the tile sizes for a mean number of routes per expert; ROWS of gate and up together.

    With few routes the weights' bytes are what takes time, with many the products. Larger tiles
    than these spill on sm_80, and packed weights take more registers.
    """
    sizes = {"ROWS": 64 if packed else 128, "COLUMNS": 64}
    if routes_per_expert <= 16:
        return {**sizes, "TOKENS": 16, "num_warps": 4, "num_stages": 4}
    return {**sizes, "TOKENS": 64, "num_warps": 8, "num_stages": 3}


VARIANTS: dict[str, Callable[[], object]] = {
    "64 tokens, rank 32, NVFP4": lambda: run_real(run_tiles, 64, 32, packed=True),
    "8192 tokens, rank 128": lambda: run_real(run_tiles, 8192, 128),
    "8192 tokens, no adapter, NVFP4": lambda: run_real(run_tiles, 8192, packed=True),
}
