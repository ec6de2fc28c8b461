"""Products with the weight of one expert, plain or NVFP4: of one token, and of a tile of routes.

No kernels of their own: what the expert kernels are made of. A weight comes as three pointers,
(weight, -, -) or (packed, scales, scales2), which `weight_pointers` gives.

Tiles for many routes: the routes are sorted by expert and cut into tiles of one expert each. How
many tiles there are is known on the device alone; the grid has as many as there could be, and
programs beyond the last tile end at once (`RouteTiles`).
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_runtime.ops.kernels.nvfp4 import load_pairs
from inkling_runtime.ops.nvfp4 import Nvfp4Weight


def weight_pointers(weight: Tensor | Nvfp4Weight) -> tuple[Tensor, Tensor, Tensor]:
    """Return the three tensors that a kernel takes for a weight; all three the same if plain."""
    if isinstance(weight, Nvfp4Weight):
        return weight.packed, weight.scales.view(torch.uint8), weight.scales2
    return weight, weight, weight


@triton.jit
def row_product(
    x, weight, scales, scales2, expert, row, in_rows, num_rows, depth,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, NVFP4: tl.constexpr,
):  # fmt: skip
    """Return some rows of an expert's weight [num_rows, depth] times one vector x, fp32 [ROWS].

    Sums stay apart per column until the end, so that a step costs no exchange between threads.
    """
    first = expert.to(tl.int64) * num_rows
    if NVFP4:
        weight += first * (depth // 2)
        scales += first * (depth // 16)
        total = tl.zeros((ROWS, COLUMNS // 2), tl.float32)
        for start in range(0, depth, COLUMNS):
            pair = start // 2 + tl.arange(0, COLUMNS // 2)
            mask = pair < depth // 2
            even = tl.load(x + 2 * pair, mask=mask, other=0.0).to(tl.float32)
            odd = tl.load(x + 2 * pair + 1, mask=mask, other=0.0).to(tl.float32)
            low, high = load_pairs(
                weight, scales, row, in_rows, start, depth, ROWS, COLUMNS
            )  # fmt: skip
            total += low * even[None, :] + high * odd[None, :]
        product = tl.sum(total, 1) * tl.load(scales2 + expert)
    else:
        weight += first * depth
        total = tl.zeros((ROWS, COLUMNS), tl.float32)
        for start in range(0, depth, COLUMNS):
            column = start + tl.arange(0, COLUMNS)
            mask = column < depth
            value = tl.load(x + column, mask=mask, other=0.0).to(tl.float32)
            tile = tl.load(
                weight + row[:, None] * depth + column[None, :],
                mask=in_rows[:, None] & mask[None, :],
                other=0.0,
            )
            total += tile.to(tl.float32) * value[None, :]
        product = tl.sum(total, 1)
    return product


@triton.jit
def tile_product(
    x, x_row, in_x, weight, scales, scales2, expert, row, in_rows, num_rows, depth,
    TOKENS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    NVFP4: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Return rows of x times some rows of an expert's weight, fp32 [TOKENS, ROWS].

    Every row of the result depends on its own row of x alone.
    """
    first = expert.to(tl.int64) * num_rows
    x += x_row.to(tl.int64)[:, None] * depth
    total = tl.zeros((TOKENS, ROWS), tl.float32)
    if NVFP4:
        weight += first * (depth // 2)
        scales += first * (depth // 16)
        for start in range(0, depth, COLUMNS):
            pair = start // 2 + tl.arange(0, COLUMNS // 2)
            mask = in_x[:, None] & (pair < depth // 2)[None, :]
            even = tl.load(x + 2 * pair[None, :], mask=mask, other=0.0)
            odd = tl.load(x + 2 * pair[None, :] + 1, mask=mask, other=0.0)
            if UPCAST:
                even, odd = even.to(tl.float32), odd.to(tl.float32)
            low, high = load_pairs(
                weight, scales, row, in_rows, start, depth, ROWS, COLUMNS
            )  # fmt: skip
            low, high = tl.trans(low.to(even.dtype)), tl.trans(high.to(odd.dtype))
            total = tl.dot(even, low, total, input_precision="ieee")
            total = tl.dot(odd, high, total, input_precision="ieee")
        total *= tl.load(scales2 + expert)
    else:
        weight += first * depth
        for start in range(0, depth, COLUMNS):
            column = start + tl.arange(0, COLUMNS)
            inside = (column < depth)[None, :]
            value = tl.load(x + column[None, :], mask=in_x[:, None] & inside, other=0.0)
            tile = tl.load(
                weight + row[:, None] * depth + column[None, :],
                mask=in_rows[:, None] & inside,
                other=0.0,
            )
            if UPCAST:
                value, tile = value.to(tl.float32), tile.to(tl.float32)
            total = tl.dot(value, tl.trans(tile), total, input_precision="ieee")
    return total


@dataclass(frozen=True, slots=True)
class RouteTiles:
    """Routes sorted by expert, and the tiles into which each expert's routes are cut."""

    order: Tensor
    """int64 [T·K]: the route of each sorted place; a route is token · K + k."""
    starts: Tensor
    """int64 [E+1]: the first sorted place of each expert."""
    tile_ends: Tensor
    """int64 [E]: how many tiles there are up to and with each expert."""
    most_tiles: int
    """How many there could be, known on the host."""


def sort_routes(expert_ids: Tensor, num_experts: int, tile_size: int) -> RouteTiles:
    """Return the routes of [T, K] expert ids in tiles; nothing is read on the host.

    Routes of expert -1 are in no tile.
    """
    experts, order = expert_ids.flatten().sort(stable=True)
    bounds = torch.arange(num_experts + 1, device=experts.device)
    starts = torch.searchsorted(experts, bounds)
    counts = starts.diff().add_(tile_size - 1).div_(tile_size, rounding_mode="floor")
    partly_filled = min(num_experts, experts.numel())
    most_tiles = (experts.numel() + partly_filled * (tile_size - 1)) // tile_size
    return RouteTiles(order, starts, counts.cumsum(0), most_tiles)


@triton.jit
def find_tile(
    order, starts, tile_ends, tile, num_experts,
    TOKENS: tl.constexpr, EXPERTS: tl.constexpr,
):  # fmt: skip
    """Return a tile's expert, its sorted places, which of them are its own, and their routes.

    A tile beyond the last one has no places. EXPERTS is a power of two ≥ the number of experts.
    """
    number = tl.arange(0, EXPERTS)
    ends = tl.load(tile_ends + number, mask=number < num_experts, other=0)
    expert = tl.sum((ends <= tile).to(tl.int32) * (number < num_experts).to(tl.int32), 0)
    exists = expert < num_experts
    expert = tl.minimum(expert, num_experts - 1)
    before = tl.load(tile_ends + expert - 1, mask=expert > 0, other=0)
    place = tl.load(starts + expert) + (tile - before) * TOKENS + tl.arange(0, TOKENS)
    mine = place < tl.where(exists, tl.load(starts + expert + 1), 0)
    route = tl.load(order + place, mask=mine, other=0)
    return expert, place, mine, route
