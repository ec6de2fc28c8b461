from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from op_cases import CPU, TOLERANCES, assert_close, randn
from torch import Tensor

from inkling_runtime.ops.key_layout import KeyLayout
from inkling_runtime.ops.relative_attention import (
    AttentionRule,
    relative_attention,
    relative_attention_reference,
)
from inkling_runtime.ops.segments import Segments

pytestmark = pytest.mark.usefixtures("native_kernels")
DTYPES = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
RULES = {
    "global": AttentionRule(),
    "log scaling": AttentionRule(log_scaling_floor=5, log_scaling_alpha=0.4),
    "sliding": AttentionRule(window=9),
    "window of one": AttentionRule(window=1),
}
ANY_RULE = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def case(
    new: Sequence[int],
    past: Sequence[int],
    *,
    heads: tuple[int, int] = (6, 2),
    dim: int = 8,
    d_rel: int = 3,
    extent: int = 7,
    block: int = 4,
    dtype: torch.dtype = torch.float32,
) -> tuple[Any, ...]:
    """Return the arguments for sequences with `past` keys and `new` queries, blocks scattered."""
    lengths = [n + p for n, p in zip(new, past, strict=True)]
    counts = [-(-length // block) for length in lengths]
    order = torch.randperm(sum(counts) + 3, generator=torch.Generator().manual_seed(2)).tolist()
    tables, width = [], max(counts)
    for count in counts:
        own, order = order[:count], order[count:]
        tables.append(own + [0] * (width - count))
    layout = KeyLayout(
        slot_mapping=torch.empty(0, dtype=torch.int64),
        block_table=torch.tensor(tables),
        first_blocks=(None,) * len(new),
        starts=(0,) * len(new),
        lengths=tuple(lengths),
        starts_device=torch.zeros(len(new), dtype=torch.int32),
        lengths_device=torch.tensor(lengths, dtype=torch.int32),
    )
    cache = (sum(counts) + 3, block, heads[1], dim)
    return (
        2 * randn(sum(new), heads[0], dim, dtype=dtype),
        randn(sum(new), heads[0], d_rel, dtype=dtype),
        randn(d_rel, extent, dtype=dtype),
        randn(*cache, dtype=dtype),
        randn(*cache, seed=1, dtype=dtype),
        Segments.from_lengths(new, CPU),
        layout,
    )


def alone(arguments: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    """Return the arguments of one of the sequences, without the others."""
    queries, relatives, profiles, keys, values, segments, layout = arguments
    rows, own = segments.slices()[index], slice(index, index + 1)
    layout = replace(
        layout,
        block_table=layout.block_table[own],
        first_blocks=layout.first_blocks[own],
        starts=layout.starts[own],
        lengths=layout.lengths[own],
        starts_device=layout.starts_device[own],
        lengths_device=layout.lengths_device[own],
    )
    own_segments = Segments.from_lengths([rows.stop - rows.start], CPU)
    return queries[rows], relatives[rows], profiles, keys, values, own_segments, layout


@DTYPES
@ANY_RULE
@pytest.mark.parametrize(
    ("heads", "dim"), [((6, 2), 8), ((5, 1), 13), ((3, 3), 20), ((4, 2), 16)], ids=str
)
@pytest.mark.parametrize(
    ("new", "past"),
    [([1], [0]), ([1, 1, 1], [3, 0, 70]), ([13], [0]), ([5, 1, 80, 3], [0, 17, 4, 9])],
    ids=["first token", "decode", "prefill", "mixed"],
)
def test_any_shape_equals_the_reference(
    new: list[int],
    past: list[int],
    heads: tuple[int, int],
    dim: int,
    rule: AttentionRule,
    dtype: torch.dtype,
) -> None:
    arguments = case(new, past, heads=heads, dim=dim, dtype=dtype)
    want = relative_attention_reference(*arguments, rule)
    assert_close(relative_attention(*arguments, rule), want)


@pytest.mark.parametrize("extent", [1, 2, 60, 64, 65, 200], ids="extent {}".format)
@pytest.mark.parametrize("d_rel", [1, 5])
def test_any_extent_of_the_bias_equals_the_reference(extent: int, d_rel: int) -> None:
    arguments = case([6, 1], [100, 140], extent=extent, d_rel=d_rel)
    for rule in (AttentionRule(), AttentionRule(window=70)):
        want = relative_attention_reference(*arguments, rule)
        assert_close(relative_attention(*arguments, rule), want)


@pytest.mark.parametrize("block", [1, 3, 64])
def test_any_block_size_gives_the_same_bits(block: int) -> None:
    rule, arguments = RULES["log scaling"], case([7, 1], [61, 129], block=4)
    queries, relatives, profiles, *caches, segments, layout = arguments

    def repack(cache: Tensor) -> Tensor:
        rows = [cache[table].flatten(0, 1) for table in layout.block_table]
        size = -(-len(rows[0]) // block) * block
        padded = [torch.cat([r, r.new_zeros(size - len(r), *r.shape[1:])]) for r in rows]
        return torch.cat(padded).unflatten(0, (-1, block))

    keys, values = (repack(cache) for cache in caches)
    table = torch.arange(len(keys)).view(2, -1)
    got = relative_attention(
        queries,
        relatives,
        profiles,
        keys,
        values,
        segments,
        replace(layout, block_table=table),
        rule,
    )
    assert torch.equal(got, relative_attention(*arguments, rule))


@DTYPES
def test_thousands_of_keys_in_spans_equal_the_reference(dtype: torch.dtype) -> None:
    arguments = case([1, 1, 2], [2300, 1023, 1500], extent=1200, block=64, dtype=dtype)
    for rule in (AttentionRule(), AttentionRule(window=1100)):
        want = relative_attention_reference(*arguments, rule).float()
        got = relative_attention(*arguments, rule).float()
        # Thousands of keys average out: the tolerance is relative to the values, not to their mean.
        assert (got - want).abs().max() < TOLERANCES[dtype]


@DTYPES
@ANY_RULE
def test_a_sequence_attends_the_same_alone_and_by_any_number_of_threads(
    rule: AttentionRule, dtype: torch.dtype
) -> None:
    arguments = case([1, 150, 1, 7], [300, 20, 1400, 64], dim=40, dtype=dtype)
    torch.set_num_threads(1)
    want = relative_attention(*arguments, rule)
    for threads in (2, 3):
        torch.set_num_threads(threads)
        assert torch.equal(relative_attention(*arguments, rule), want)
    torch.set_num_threads(1)
    for index, rows in enumerate(arguments[5].slices()):
        got = relative_attention(*alone(arguments, index), rule)
        assert torch.equal(got, want[rows])


@DTYPES
@ANY_RULE
@pytest.mark.parametrize(("dim", "block"), [(8, 4), (16, 64), (32, 12)])
def test_a_prompt_in_chunks_attends_as_in_one_piece(
    dim: int, block: int, rule: AttentionRule, dtype: torch.dtype
) -> None:
    queries, relatives, *shared, _, layout = case([150], [0], dim=dim, block=block, dtype=dtype)
    whole = relative_attention(
        queries, relatives, *shared, Segments.from_lengths([150], CPU), layout, rule
    )
    begin = 0
    for count in (64, 3, 1, 82):
        end = begin + count
        so_far = replace(
            layout, lengths=(end,), lengths_device=torch.tensor([end], dtype=torch.int32)
        )
        segments = Segments.from_lengths([count], CPU)
        got = relative_attention(
            queries[begin:end], relatives[begin:end], *shared, segments, so_far, rule
        )
        assert torch.equal(got, whole[begin:end])
        begin = end


def test_blocks_that_the_window_has_left_behind_change_no_bit() -> None:
    rule, whole = AttentionRule(window=9), case([3, 1], [150, 149])
    layout = whole[-1]
    trimmed = replace(
        layout,
        block_table=layout.block_table[:, 33:],
        starts=(132, 132),
        starts_device=torch.tensor([132, 132], dtype=torch.int32),
    )
    assert not trimmed.block_table.is_contiguous()
    got = relative_attention(*whole[:-1], trimmed, rule)
    assert torch.equal(got, relative_attention(*whole, rule))


@pytest.mark.parametrize("dim", [8, 16])
@pytest.mark.parametrize("new", [1, 5])
def test_what_is_masked_may_be_anything(new: int, dim: int) -> None:
    arguments = case([new], [25 - new], block=4, dim=dim)
    rule, layout = AttentionRule(window=6), arguments[-1]
    want = relative_attention(*arguments, rule)
    for cache in arguments[3:5]:
        rows = cache.flatten(0, 1)
        seen = {int(b) * 4 + i for b in layout.block_table[0] for i in range(4)}
        first = [int(layout.block_table[0, s // 4]) * 4 + s % 4 for s in range(15)]
        hidden = [row for row in range(len(rows)) if row not in seen or row in first]
        rows[hidden] = torch.nan
    assert torch.equal(relative_attention(*arguments, rule), want)


def test_views_of_queries_give_the_bits_of_their_copies() -> None:
    queries, relatives, *rest = case([4, 1], [9, 30])
    rule = RULES["sliding"]
    strided = torch.stack([queries, queries], -1)[..., 0]
    assert not strided.is_contiguous()
    got = relative_attention(strided, relatives, *rest, rule)
    assert torch.equal(got, relative_attention(queries, relatives, *rest, rule))
