from dataclasses import replace

import pytest
import torch
from op_cases import CPU, assert_close, randn
from torch import Tensor

from inkling_runtime.ops.key_layout import KeyLayout
from inkling_runtime.ops.relative_attention import (
    AttentionRule,
    relative_attention,
    relative_attention_reference,
)
from inkling_runtime.ops.segments import Segments

HEADS, KV_HEADS, DIM, REL, EXTENT, BLOCK = 6, 2, 8, 3, 7, 4
RULES = {
    "global": AttentionRule(),
    "log scaling": AttentionRule(log_scaling_floor=5, log_scaling_alpha=0.4),
    "sliding": AttentionRule(window=9),
    "window of one": AttentionRule(window=1),
}


def case(
    new: list[int],
    past: list[int],
    *,
    neighbours: bool,
    starts: list[int] | None = None,
    extent: int = EXTENT,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Segments, KeyLayout]:
    """Return the arguments for sequences with `past` keys and `new` queries each."""
    starts = starts or [0] * len(new)
    lengths = [n + p for n, p in zip(new, past, strict=True)]
    counts = [-(-(n - s) // BLOCK) for n, s in zip(lengths, starts, strict=True)]
    order = list(range(sum(counts)))
    if not neighbours:
        order = torch.randperm(len(order), generator=torch.Generator().manual_seed(2)).tolist()
    tables, used = [], 0
    for count in counts:
        tables.append(order[used : used + count])
        used += count
    width = max(counts)
    layout = KeyLayout(
        slot_mapping=torch.empty(0, dtype=torch.int64),
        block_table=torch.tensor([t + [0] * (width - len(t)) for t in tables]),
        first_blocks=tuple(t[0] if neighbours else None for t in tables),
        starts=tuple(starts),
        lengths=tuple(lengths),
        starts_device=torch.tensor(starts, dtype=torch.int32),
        lengths_device=torch.tensor(lengths, dtype=torch.int32),
    )
    tokens = sum(new)
    return (
        randn(tokens, HEADS, DIM, dtype=dtype) * 2,
        randn(tokens, HEADS, REL, dtype=dtype),
        randn(REL, extent, dtype=dtype),
        randn(used, BLOCK, KV_HEADS, DIM, dtype=dtype),
        randn(used, BLOCK, KV_HEADS, DIM, seed=1, dtype=dtype),
        Segments.from_lengths(new, CPU),
        layout,
    )


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("neighbours", [True, False], ids=["neighbours", "scattered"])
@pytest.mark.parametrize(
    ("new", "past"),
    [([1], [0]), ([1, 1, 1], [3, 0, 30]), ([13], [0]), ([5, 1, 20, 3], [0, 17, 4, 9])],
    ids=["first token", "decode", "prefill", "mixed"],
)
def test_attention_equals_its_reference(
    new: list[int], past: list[int], neighbours: bool, rule: AttentionRule
) -> None:
    arguments = case(new, past, neighbours=neighbours)
    assert_close(
        relative_attention(*arguments, rule), relative_attention_reference(*arguments, rule)
    )


@pytest.mark.parametrize("extent", [1, 2, 40], ids="extent {}".format)
def test_any_extent_of_the_bias_equals_the_reference(extent: int) -> None:
    arguments = case([6, 1], [11, 25], neighbours=True, extent=extent)
    rule = AttentionRule()
    assert_close(
        relative_attention(*arguments, rule), relative_attention_reference(*arguments, rule)
    )


def test_more_queries_than_one_pass_takes_equal_the_reference() -> None:
    arguments = case([150, 140], [0, 3], neighbours=True)
    for rule in RULES.values():
        assert_close(
            relative_attention(*arguments, rule), relative_attention_reference(*arguments, rule)
        )


def test_bf16_is_close_to_the_reference() -> None:
    arguments = case([5, 1], [0, 17], neighbours=False, dtype=torch.bfloat16)
    assert_close(
        relative_attention(*arguments, RULES["log scaling"]),
        relative_attention_reference(*arguments, RULES["log scaling"]),
    )


def test_blocks_that_the_window_has_left_behind_are_not_missed() -> None:
    rule = AttentionRule(window=9)
    whole = case([3], [25], neighbours=True)
    queries, relatives, profiles, keys, values, segments, layout = whole
    trimmed = replace(
        layout,
        block_table=layout.block_table[:, 4:],
        first_blocks=(4,),
        starts=(16,),
        starts_device=torch.tensor([16], dtype=torch.int32),
    )
    got = relative_attention(queries, relatives, profiles, keys, values, segments, trimmed, rule)
    assert torch.equal(got, relative_attention(*whole, rule))


def test_the_bias_is_zero_not_minus_infinity_beyond_its_extent() -> None:
    arguments = case([1], [20], neighbours=True)
    queries, _, _, keys, values, segments, layout = arguments
    zero, rule = torch.zeros(1, HEADS, REL), AttentionRule()
    plain = relative_attention(
        queries, zero, torch.zeros(REL, EXTENT), keys, values, segments, layout, rule
    )
    rows = values.flatten(0, 1)[:21].repeat_interleave(HEADS // KV_HEADS, 1)
    scores = torch.einsum(
        "nd,snd->ns", queries[0], keys.flatten(0, 1)[:21].repeat_interleave(HEADS // KV_HEADS, 1)
    )
    want = torch.einsum("ns,snd->nd", (scores / DIM).softmax(-1), rows)
    assert_close(plain[0], want)
