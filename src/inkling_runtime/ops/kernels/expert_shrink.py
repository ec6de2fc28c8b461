"""The first LoRA product of up to four sites of the experts in one launch, without a sort.

Sites are gate and up of the routed experts, then of the shared ones; `columns` are their copies,
one after the other: K for a routed site, S for a shared one. Few tokens take a program per token,
column and part of the input; copies that a shared A does not need end at once. Many tokens are
multiplied in tiles: of neighbouring tokens where A does not depend on the route, of sorted routes
(`RouteTiles`) where it does. A tile may hold any mix of adapters and is multiplied once per
adapter that it has.
"""

from collections.abc import Callable, Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_runtime.ops.kernels.expert_lora import load_site
from inkling_runtime.ops.kernels.grouped_gemm import find_tile, sort_routes
from inkling_runtime.ops.kernels.launch import INTERPRETED, launch
from inkling_runtime.ops.kernels.slots_table import TABLE_COLUMNS, are_aligned, rank_block
from inkling_runtime.ops.lora_pair import LoraPair
from inkling_runtime.ops.lora_slots import LoraSlots

MOST_TOKENS = 32
"""With more, tiles are cheaper."""
TOKEN_SPLITS, TILE_SPLITS, TILE_TOKENS = 8, 2, 32


@triton.jit
def _find_site(
    column, table_0, table_1, table_2, table_3,
    ROUTED_GATE: tl.constexpr, ROUTED: tl.constexpr, SHARED_GATE: tl.constexpr,
):  # fmt: skip
    """Return the table of the site that a column belongs to, and the site's first column."""
    table, first = table_0, 0
    if column >= ROUTED_GATE:
        table, first = table_1, ROUTED_GATE
    if column >= ROUTED:
        table, first = table_2, ROUTED
    if column >= ROUTED + SHARED_GATE:
        table, first = table_3, ROUTED + SHARED_GATE
    return table, first


@triton.jit
def expert_shrink_tokens_kernel(
    x, z, expert_ids, ids, table_0, table_1, table_2, table_3, hidden_size,
    TOP_K: tl.constexpr, ROUTED_GATE: tl.constexpr, ROUTED: tl.constexpr,
    SHARED_GATE: tl.constexpr, RANK: tl.constexpr, ALIGNED: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write one copy of one site of one token, summed over one part of the input."""
    token, column, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot = tl.load(ids + token)
    if slot >= 0:
        table, first = _find_site(
            column, table_0, table_1, table_2, table_3, ROUTED_GATE, ROUTED, SHARED_GATE
        )
        entry = table + slot * TABLE_COLUMNS
        rank, expert_stride = tl.load(entry + 2), tl.load(entry + 3)
        copy = column - first
        expert = tl.load(expert_ids + token * TOP_K + copy, mask=column < ROUTED, other=copy)
        wanted = tl.where(expert_stride != 0, expert >= 0, copy == 0)
        if (rank > 0) & wanted:
            a, _ = load_site(table, slot, expert, 0, x.dtype.element_ty, ALIGNED)
            feature = tl.arange(0, RANK)
            total = tl.zeros((RANK, COLUMNS), tl.float32)
            x += token.to(tl.int64) * hidden_size
            for start in range(split * COLUMNS, hidden_size, COLUMNS * tl.num_programs(2)):
                at = start + tl.arange(0, COLUMNS)
                inside = at < hidden_size
                factor = tl.load(
                    a + feature[:, None] * hidden_size + at[None, :],
                    mask=(feature < rank)[:, None] & inside[None, :],
                    other=0.0,
                )
                value = tl.load(x + at, mask=inside, other=0.0)
                total += factor.to(tl.float32) * value.to(tl.float32)[None, :]
            row = split.to(tl.int64) * tl.num_programs(0) + token
            row = row * tl.num_programs(1) + column
            tl.store(z + row * RANK + feature, tl.sum(total, 1))


@triton.jit
def expert_shrink_tiles_kernel(
    x, z, order, starts, tile_ends, ids, table_0, table_1, table_2, table_3,
    num_tokens, hidden_size, num_slots, num_experts, token_tiles, num_columns,
    TOP_K: tl.constexpr, ROUTED_GATE: tl.constexpr, ROUTED: tl.constexpr,
    SHARED_GATE: tl.constexpr, ROUTES: tl.constexpr, RANK: tl.constexpr,
    ALIGNED: tl.constexpr, TOKENS: tl.constexpr,
    COLUMNS: tl.constexpr, EXPERTS: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Write one site of a tile of tokens or of routes, summed over one part of the input.

    The second grid axis has the two routed sites, then the columns of the shared ones.
    """
    tile, site, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    column = tl.where(site < 2, site * ROUTED_GATE, ROUTED + site - 2)
    token = tile * TOKENS + tl.arange(0, TOKENS)
    mine = token < num_tokens
    by_route = tile >= token_tiles
    copy = tl.zeros((TOKENS,), tl.int64)
    table, first = _find_site(
        column, table_0, table_1, table_2, table_3, ROUTED_GATE, ROUTED, SHARED_GATE
    )
    expert = column - first
    if ROUTES and by_route:
        expert, _, mine, route = find_tile(
            order, starts, tile_ends, tile - token_tiles, num_experts, TOKENS, EXPERTS
        )
        token, copy = (route // TOP_K).to(tl.int32), route % TOP_K
    adapter = tl.load(ids + token, mask=mine, other=-1)
    is_routed = site < 2
    if is_routed:
        exists = tl.where(site == 0, ROUTED_GATE, ROUTED - ROUTED_GATE) > 0
    else:
        exists = tile < token_tiles
    num_slots = tl.where(exists, num_slots, 0)
    for slot in range(num_slots):
        own = adapter == slot
        if tl.max(own.to(tl.int32), 0) > 0:
            entry = table + slot * TABLE_COLUMNS
            rank, expert_stride = tl.load(entry + 2), tl.load(entry + 3)
            # The routed sites' factors are multiplied in the tiles that their layout needs.
            apart = expert_stride != 0
            wanted = tl.where(is_routed, by_route == apart, apart | (expert == 0))
            if wanted & (rank > 0):
                a, _ = load_site(table, slot, expert, 0, x.dtype.element_ty, ALIGNED)
                feature = tl.arange(0, RANK)
                total = tl.zeros((TOKENS, RANK), tl.float32)
                for start in range(split * COLUMNS, hidden_size, COLUMNS * tl.num_programs(2)):
                    at = start + tl.arange(0, COLUMNS)
                    inside = (at < hidden_size)[None, :]
                    value = tl.load(
                        x + token.to(tl.int64)[:, None] * hidden_size + at[None, :],
                        mask=own[:, None] & inside,
                        other=0.0,
                    )
                    factor = tl.load(
                        a + feature[:, None] * hidden_size + at[None, :],
                        mask=(feature < rank)[:, None] & inside,
                        other=0.0,
                    )
                    if UPCAST:
                        value, factor = value.to(tl.float32), factor.to(tl.float32)
                    total = tl.dot(value, tl.trans(factor), total, input_precision="ieee")
                row = split.to(tl.int64) * num_tokens + token
                row = row * num_columns + column + copy
                tl.store(z + row[:, None] * RANK + feature[None, :], total, mask=own[:, None])


def shrink_sites(
    x: Tensor,
    expert_ids: Tensor,
    sites: Sequence[LoraSlots | None],
    num_shared: int,
    ids: Tensor,
) -> list[Tensor | None]:
    """Return the products of the four sites, each fp32 [P, T, copies, R]; None for no site."""
    tokens, top_k = expert_ids.shape
    copies = (top_k, top_k, num_shared, num_shared)
    counts = [count if slots else 0 for slots, count in zip(sites, copies, strict=True)]
    splits = TOKEN_SPLITS if tokens <= MOST_TOKENS else TILE_SPLITS
    rank = rank_block(sites)
    z = x.new_empty((splits, tokens, sum(counts), rank), dtype=torch.float32)
    tables = [slots.table if slots else ids for slots in sites]
    constants = {
        "TOP_K": top_k,
        "ROUTED_GATE": counts[0],
        "ROUTED": counts[0] + counts[1],
        "SHARED_GATE": counts[2],
        "RANK": rank,
        "ALIGNED": are_aligned(sites),
    }
    if tokens <= MOST_TOKENS:
        launch(
            expert_shrink_tokens_kernel, (tokens, sum(counts), splits), x, z, expert_ids, ids,
            *tables, x.shape[1], **constants, COLUMNS=128,
        )  # fmt: skip
    else:
        _shrink_tiles(x, z, expert_ids, sites, tables, ids, constants)
    return [
        part if slots else None for part, slots in zip(z.split(counts, dim=2), sites, strict=True)
    ]


def _shrink_tiles(
    x: Tensor,
    z: Tensor,
    expert_ids: Tensor,
    sites: Sequence[LoraSlots | None],
    tables: Sequence[Tensor],
    ids: Tensor,
    constants: dict[str, int],
) -> None:
    tokens, hidden_size = x.shape
    token_tiles, route_tiles, num_experts = triton.cdiv(tokens, TILE_TOKENS), 0, 1
    order = starts = tile_ends = ids
    apart = [a for a in _factors(sites[:2]) if len(a) > 1]
    if apart:
        num_experts = len(apart[0])
        tiles = sort_routes(expert_ids, num_experts, TILE_TOKENS)
        order, starts, tile_ends = tiles.order, tiles.starts, tiles.tile_ends
        route_tiles = tiles.most_tiles
    shared_columns = z.shape[2] - constants["ROUTED"]
    num_slots = max(len(slots) for slots in sites if slots)
    launch(
        expert_shrink_tiles_kernel, (token_tiles + route_tiles, 2 + shared_columns, z.shape[0]),
        x, z, order, starts, tile_ends, ids, *tables, tokens, hidden_size, num_slots, num_experts,
        token_tiles, z.shape[2], **constants, ROUTES=bool(apart), TOKENS=TILE_TOKENS, COLUMNS=64,
        EXPERTS=triton.next_power_of_2(num_experts), UPCAST=INTERPRETED, num_stages=3,
    )  # fmt: skip


def _factors(sites: Sequence[LoraSlots | None]) -> list[Tensor]:
    """Return A of every adapter that has one of the sites."""
    return [
        pair.a
        for slots in sites
        if slots
        for slot in range(len(slots))
        if (pair := slots[slot]) is not None
    ]


def _run_real(tokens: int, rank: int, apart: int) -> None:
    """Shrink at real sizes; `apart` is the number of experts that A of the routed ones has."""
    a = torch.empty(apart, rank, 6144, dtype=torch.bfloat16)
    pair = LoraPair(a, torch.empty(256, 3072, rank, dtype=torch.bfloat16), 1.0)
    slots = LoraSlots([pair] * 4, a.device)
    shrink_sites(
        torch.empty(tokens, 6144, dtype=torch.bfloat16),
        torch.empty(tokens, 6, dtype=torch.int64),
        [slots] * 4,
        2,
        torch.empty(tokens, dtype=torch.int64),
    )


VARIANTS: dict[str, Callable[[], object]] = {
    "1 token, rank 32": lambda: _run_real(1, 32, 1),
    "8192 tokens, rank 128, A per expert": lambda: _run_real(8192, 128, 256),
}
