"""Relative-bias attention on a GPU: one kernel for decode and prefill, one that joins splits.

A program takes a tile of neighbouring queries of one sequence with all query heads that share a
K/V head: its rows are (query, head), so keys and values are read once per group. In decode the
tile is one query and the keys are cut into splits, so that one long sequence fills the device; in
prefill the tile has several queries and there is one split.

A batch may mix both: the decode launch leaves sequences with several new tokens alone, the
prefill launch those with one. Lengths are read on the device and only upper bounds on the host,
so a captured graph stays valid while sequences grow.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_runtime.ops.kernels.launch import INTERPRETED, launch

SLIDING_SPAN, SLIDING_SPLITS = 128, 4
GLOBAL_SPAN, GLOBAL_SPLITS = 512, 32
"""Keys that a split has at least, and how many splits there are at most.

A sequence of 8192 keys and 8 K/V heads makes 128 programs, about as many as a GPU has
multiprocessors. The cut depends on nothing but the sequence's own length, so that its results do
not depend on the batch.
"""


@triton.jit
def _load(base, row, valid, column, width, UPCAST: tl.constexpr):
    """Load columns of rows of a contiguous [*, width] tensor, 0 where not valid."""
    x = tl.load(base + row * width + column, mask=valid & (column < width), other=0.0)
    return x.to(tl.float32) if UPCAST else x


@triton.jit
def _attend_range(
    begin, end, y, total, largest, q, relative, position, scale, profiles, key_cache, value_cache,
    table, start, first_position, slot_stride,
    BIASED: tl.constexpr, DIM: tl.constexpr, DIMS: tl.constexpr, KEYS: tl.constexpr,
    EXTENT: tl.constexpr, REL: tl.constexpr, RELS: tl.constexpr, FEATURES: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, WINDOW: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Add the keys of positions [begin, end) to a running softmax of base 2.

    Row (query, head) of `relative` is 0 but for the features that are the query's own, so one
    product of matrices gives each query the columns of `profiles` at its own distances.
    """
    feature = tl.arange(0, FEATURES)
    dim = tl.arange(0, DIMS)
    for first_key in range(begin, end, KEYS):
        key = first_key + tl.arange(0, KEYS)
        place = key - start
        block = tl.load(table + place // BLOCK_SIZE, mask=key < end, other=0)
        slot = block.to(tl.int64) * BLOCK_SIZE + place % BLOCK_SIZE
        offset = slot[:, None] * slot_stride + dim[None, :]
        mask = (key < end)[:, None] & (dim < DIM)[None, :]
        k = tl.load(key_cache + offset, mask=mask, other=0.0)
        v = tl.load(value_cache + offset, mask=mask, other=0.0)
        if UPCAST:
            k = k.to(tl.float32)
            v = v.to(tl.float32)
        score = tl.dot(q, tl.trans(k), input_precision="ieee") * (1.0 / DIM)
        if BIASED:
            away = first_position - key[None, :] + (feature // RELS)[:, None]
            mask = (feature % RELS < REL)[:, None] & (away >= 0)
            bias = _load(profiles, (feature % RELS)[:, None], mask, away, EXTENT, UPCAST)
            score += tl.dot(relative, bias, input_precision="ieee")
        distance = position[:, None] - key[None, :]
        seen = (distance >= 0) & (key < end)[None, :]
        if WINDOW > 0:
            seen = seen & (distance < WINDOW)
        score = tl.where(seen, score * scale[:, None], float("-inf"))
        larger = tl.maximum(largest, tl.max(score, 1))
        # A row that has seen no key yet: any finite number keeps exp2 of -inf at 0.
        reference = tl.where(larger == float("-inf"), 0.0, larger)
        weight = tl.exp2(score - reference[:, None])
        shrink = tl.exp2(largest - reference)
        total = total * shrink + tl.sum(weight, 1)
        y = y * shrink[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee")
        largest = larger
    return y, total, largest


@triton.jit
def _find_tile(cu_seqlens, num_sequences, QUERIES: tl.constexpr, SEQUENCES: tl.constexpr):
    """Return this program's sequence, and its first query within the sequence.

    Decode has one program per sequence. Else sequence b starts at tile cu_seqlens[b] // QUERIES
    + b: an upper bound of the tiles before it that needs no sum over the sequences.
    """
    program = tl.program_id(0)
    sequence, first_query = program, 0
    if QUERIES > 1:
        index = tl.arange(0, SEQUENCES)
        valid = index < num_sequences
        first_tile = tl.load(cu_seqlens + index, mask=valid, other=0) // QUERIES + index
        sequence = tl.sum((valid & (first_tile <= program)).to(tl.int32), 0) - 1
        first_query = program - tl.load(cu_seqlens + sequence) // QUERIES - sequence
    return sequence, first_query * QUERIES


@triton.jit
def _split_range(low, high, SPLITS: tl.constexpr, MIN_SPAN: tl.constexpr, KEYS: tl.constexpr):
    """Return the keys of this program's split, in whole tiles but for the end."""
    span = tl.cdiv(tl.maximum(tl.cdiv(high - low, SPLITS), MIN_SPAN), KEYS) * KEYS
    begin = low + tl.program_id(2) * span
    return begin, tl.minimum(begin + span, high)


@triton.jit
def _log_scaling(position, FLOOR: tl.constexpr, ALPHA: tl.constexpr):
    """Return τ per position, times log2(e): the softmax has base 2."""
    scale = tl.full(position.shape, 1.4426950408889634, tl.float32)
    if FLOOR > 0:
        ratio = tl.maximum((position + 1).to(tl.float32) / FLOOR, 1.0)
        scale *= 1.0 + ALPHA * tl.log(ratio)
    return scale


@triton.jit(do_not_specialize=["num_sequences", "table_width"])
def attend_kernel(
    queries, relatives, profiles, key_cache, value_cache, y_parts, log_sums, cu_seqlens, starts,
    lengths, block_table, num_sequences, table_width, slot_stride, head_stride,
    NUM_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, DIMS: tl.constexpr,
    REL: tl.constexpr, RELS: tl.constexpr, EXTENT: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr, FLOOR: tl.constexpr, ALPHA: tl.constexpr, SPLITS: tl.constexpr,
    MIN_SPAN: tl.constexpr, QUERIES: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    FEATURES: tl.constexpr, SEQUENCES: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Attend from one tile of queries to one split of its keys; grid (tile, K/V head, split)."""
    sequence, first_query = _find_tile(cu_seqlens, num_sequences, QUERIES, SEQUENCES)
    kv_head = tl.program_id(1)
    first_token = tl.load(cu_seqlens + sequence)
    num_queries = tl.load(cu_seqlens + sequence + 1) - first_token
    if (num_queries == 1) != (QUERIES == 1) or first_query >= num_queries:
        return
    start, length = tl.load(starts + sequence), tl.load(lengths + sequence)
    first_position = length - num_queries + first_query
    low = start
    if WINDOW > 0:
        low = tl.maximum(start, first_position - WINDOW + 1)
    high = tl.minimum(first_position + QUERIES, length)
    begin, end = _split_range(low, high, SPLITS, MIN_SPAN, KEYS)

    rows = tl.arange(0, ROWS)
    query = first_query + rows // GROUP
    valid = (rows < QUERIES * GROUP) & (query < num_queries)
    head = (first_token + query).to(tl.int64) * NUM_HEADS + kv_head * GROUP + rows % GROUP
    dim, feature = tl.arange(0, DIMS), tl.arange(0, FEATURES)
    q = _load(queries, head[:, None], valid[:, None], dim[None, :], DIM, UPCAST)
    own = valid[:, None] & (rows[:, None] // GROUP == feature[None, :] // RELS)
    relative = _load(relatives, head[:, None], own, feature[None, :] % RELS, REL, UPCAST)
    position = first_position + rows // GROUP
    scale = _log_scaling(position, FLOOR, ALPHA)
    table = block_table + sequence.to(tl.int64) * table_width
    key_cache += kv_head.to(tl.int64) * head_stride
    value_cache += kv_head.to(tl.int64) * head_stride
    y = tl.zeros([ROWS, DIMS], tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    # Up to here every key is further than the extent from every query of the tile: no bias.
    far = begin + tl.maximum(first_position - EXTENT + 1 - begin, 0) // KEYS * KEYS
    far = tl.minimum(far, end)
    for BIASED in tl.static_range(2):
        if BIASED or WINDOW == 0 or WINDOW > EXTENT:
            y, total, largest = _attend_range(
                far if BIASED else begin, end if BIASED else far, y, total, largest, q, relative,
                position, scale, profiles, key_cache, value_cache, table, start, first_position,
                slot_stride, BIASED, DIM, DIMS, KEYS, EXTENT, REL, RELS, FEATURES, BLOCK_SIZE,
                WINDOW, UPCAST,
            )  # fmt: skip
    divisor = tl.where(total > 0, total, 1.0)
    y = y / divisor[:, None]
    mask = valid[:, None] & (dim < DIM)[None, :]
    if SPLITS == 1:
        tl.store(y_parts + head[:, None] * DIM + dim[None, :], y, mask=mask)
    else:
        # A split without keys has the weight 2^-inf: its part of y is neither written nor read.
        part = sequence.to(tl.int64) * NUM_HEADS + kv_head * GROUP + rows % GROUP
        part = part * SPLITS + tl.program_id(2)
        tl.store(y_parts + part[:, None] * DIM + dim[None, :], y, mask=mask & (total > 0)[:, None])
        tl.store(log_sums + part, largest + tl.log2(divisor), mask=valid)


@triton.jit
def join_kernel(
    y_parts, log_sums, y, cu_seqlens,
    NUM_HEADS: tl.constexpr, DIM: tl.constexpr, DIMS: tl.constexpr, SPLITS: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
):  # fmt: skip
    """Weigh the splits of one head of one sequence by their sums; grid (sequence, head).

    The sums run over MAX_SPLITS terms, whatever SPLITS is: their order must not depend on the
    batch.
    """
    sequence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = tl.load(cu_seqlens + sequence)
    if tl.load(cu_seqlens + sequence + 1) - token != 1:
        return
    split, dim = tl.arange(0, MAX_SPLITS), tl.arange(0, DIMS)
    part = (sequence * NUM_HEADS + head) * SPLITS + split
    log_sum = tl.load(log_sums + part, mask=split < SPLITS, other=float("-inf"))
    largest = tl.max(log_sum, 0)
    weight = tl.exp2(log_sum - tl.where(largest == float("-inf"), 0.0, largest))
    mask = (log_sum > float("-inf"))[:, None] & (dim < DIM)[None, :]
    parts = tl.load(y_parts + part[:, None] * DIM + dim[None, :], mask=mask, other=0.0)
    total = tl.sum(weight, 0)
    joined = tl.sum(parts * weight[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(y + (token.to(tl.int64) * NUM_HEADS + head) * DIM + dim, joined, mask=dim < DIM)


class _Tile(NamedTuple):
    """How a launch cuts the work."""

    queries: int
    rows: int
    """Places for queries · group rows, a power of two."""
    keys: int
    """Per iteration, a power of two."""
    splits: int
    max_splits: int
    span: int
    num_warps: int = 4


def _plan_decode(group: int, max_keys: int, window: int) -> _Tile:
    """Return the tile of one query per sequence; no sequence holds more than `max_keys`."""
    rows = max(16, triton.next_power_of_2(group))
    if window:
        span, most, max_keys = SLIDING_SPAN, SLIDING_SPLITS, min(max_keys, window)
    else:
        span, most = GLOBAL_SPAN, GLOBAL_SPLITS
    return _Tile(1, rows, 64, min(most, max(1, -(-max_keys // span))), most, span)


def _plan_prefill(group: int) -> _Tile:
    """Return the tile of eight queries per sequence.

    Not more: their features (queries · R_d) are the inner size of the product that makes the bias,
    and on sm_80 larger tiles spill.
    """
    queries = 8
    rows = max(16, triton.next_power_of_2(queries * group))
    return _Tile(queries, rows, 32, 1, 1, 32, num_warps=8)


def attend(
    queries: Tensor,
    relatives: Tensor,
    profiles: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    cu_seqlens: Tensor,
    starts: Tensor,
    lengths: Tensor,
    block_table: Tensor,
    *,
    decodes: bool,
    prefills: bool,
    window: int | None = None,
    floor: int | None = None,
    alpha: float = 0.0,
) -> Tensor:
    """Return `relative_attention` [T, N, D], in at most three launches.

    Args:
        queries: [T, N, D].
        relatives: [T, N, R_d].
        profiles: [R_d, X].
        key_cache: [blocks, block_size, N_kv, D]; blocks follow one another.
        value_cache: likewise, with the same strides.
        cu_seqlens: int32 [B+1].
        starts: int32 [B], position of each sequence's first cached row.
        lengths: int32 [B].
        block_table: int64 [B, M]; M · block_size bounds the keys of every sequence.
        decodes: whether a sequence has one token in this step.
        prefills: whether a sequence has several.
        window: tokens that a query sees, or None.
        floor: from which position on scores grow, or None.
        alpha: how fast.
    """
    queries, relatives, block_table = (x.contiguous() for x in (queries, relatives, block_table))
    sources = (queries, relatives, profiles.contiguous(), key_cache, value_cache)
    places = (cu_seqlens, starts, lengths, block_table)
    group, max_keys = (
        queries.shape[1] // key_cache.shape[2],
        block_table.shape[1] * key_cache.shape[1],
    )
    rule = {"WINDOW": window or 0, "FLOOR": floor or 0, "ALPHA": alpha}
    y = torch.empty_like(queries)
    if decodes:
        _attend(sources, places, y, _plan_decode(group, max_keys, window or 0), rule)
    if prefills:
        _attend(sources, places, y, _plan_prefill(group), rule)
    return y


def _attend(
    sources: tuple[Tensor, ...],
    places: tuple[Tensor, ...],
    y: Tensor,
    tile: _Tile,
    rule: dict[str, Any],
) -> None:
    """Fill the rows of `y` whose sequences the tile is for."""
    num_tokens, num_heads, dim = y.shape
    key_cache, (cu_seqlens, _, _, block_table) = sources[3], places
    num_sequences, (block_size, num_kv_heads) = len(block_table), key_cache.shape[1:3]
    strides = key_cache.stride()
    assert strides == sources[4].stride(), "keys and values have different strides"
    assert strides[0] == block_size * strides[1], "blocks do not follow one another"
    assert strides[3] == 1, "a head's numbers do not follow one another"
    y_parts, log_sums = y, y
    if tile.splits > 1:
        log_sums = y.new_empty(num_sequences, num_heads, tile.splits, dtype=torch.float32)
        y_parts = y.new_empty(*log_sums.shape, dim, dtype=torch.float32)
    rels = triton.next_power_of_2(sources[1].shape[2])
    is_decode = tile.queries == 1
    num_tiles = num_sequences if is_decode else num_tokens // tile.queries + num_sequences
    launch(
        attend_kernel,
        (num_tiles, num_kv_heads, tile.splits),
        *sources,
        y_parts,
        log_sums,
        *places,
        num_sequences,
        block_table.shape[1],
        strides[1],
        strides[2],
        NUM_HEADS=num_heads,
        GROUP=num_heads // num_kv_heads,
        DIM=dim,
        DIMS=max(16, triton.next_power_of_2(dim)),
        REL=sources[1].shape[2],
        RELS=rels,
        EXTENT=sources[2].shape[1],
        BLOCK_SIZE=block_size,
        SPLITS=tile.splits,
        MIN_SPAN=tile.span,
        QUERIES=tile.queries,
        ROWS=tile.rows,
        KEYS=tile.keys,
        FEATURES=max(16, triton.next_power_of_2(tile.queries * rels)),
        SEQUENCES=1 if is_decode else triton.next_power_of_2(num_sequences),
        UPCAST=INTERPRETED,
        num_warps=tile.num_warps,
        **rule,
    )
    if tile.splits > 1:
        launch(
            join_kernel,
            (num_sequences, num_heads),
            y_parts,
            log_sums,
            y,
            cu_seqlens,
            NUM_HEADS=num_heads,
            DIM=dim,
            DIMS=max(16, triton.next_power_of_2(dim)),
            SPLITS=tile.splits,
            MAX_SPLITS=tile.max_splits,
            num_warps=4,
        )


def _real_size(new_tokens: int, num_kv_heads: int, extent: int, **rule: Any) -> Tensor:
    """Attend at the size of an Inkling layer, 8 sequences, bf16."""
    bf16, blocks = torch.bfloat16, torch.empty(512, 64, num_kv_heads, 128, dtype=torch.bfloat16)
    counts = torch.empty(9, dtype=torch.int32)
    return attend(
        torch.empty(8 * new_tokens, 64, 128, dtype=bf16),
        torch.empty(8 * new_tokens, 64, 16, dtype=bf16),
        torch.empty(16, extent, dtype=bf16),
        blocks,
        blocks,
        counts,
        counts[:8],
        counts[:8],
        torch.empty(8, 128, dtype=torch.int64),
        decodes=new_tokens == 1,
        prefills=new_tokens > 1,
        **rule,
    )


VARIANTS = {
    "decode, global": lambda: _real_size(1, 8, 1024, floor=128000, alpha=0.1),
    "prefill, global": lambda: _real_size(300, 8, 1024, floor=128000, alpha=0.1),
    "prefill, sliding": lambda: _real_size(300, 16, 512, window=512),
}
