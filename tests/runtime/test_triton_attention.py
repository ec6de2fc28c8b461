"""The attention kernels against the reference: several sequences with scattered blocks, windows
and extents that end within a tile, and batches that mix one and several new tokens."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from op_cases import randn
from torch import Tensor
from triton_device import DEVICE, MARKS

from inkling_runtime.ops.backend import Backend, use_backend
from inkling_runtime.ops.kernels import relative_attention as kernels
from inkling_runtime.ops.kernels.launch import count_launches
from inkling_runtime.ops.key_layout import KeyLayout
from inkling_runtime.ops.relative_attention import (
    AttentionRule,
    relative_attention,
    relative_attention_reference,
)
from inkling_runtime.ops.segments import Segments

pytestmark = MARKS

TOLERANCES = {torch.float32: 4e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
"""By dtype, relative to the largest wanted value; the interpreter truncates to bf16."""
HEADS, KV_HEADS, DIM, REL, EXTENT, BLOCK = 6, 2, 20, 3, 37, 4
RULES = {
    "global": AttentionRule(),
    "log scaling": AttentionRule(log_scaling_floor=9, log_scaling_alpha=0.4),
    "window of the extent": AttentionRule(window=EXTENT),
    "window beyond the extent": AttentionRule(window=90, log_scaling_floor=9, log_scaling_alpha=2),
    "window of one": AttentionRule(window=1),
}
ANY_RULE = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
ONES = [1, 1, 1, 1, 1]
PAST = [0, 3, 36, 110, 64]


def case(
    new: Sequence[int],
    past: Sequence[int],
    *,
    starts: Sequence[int] | None = None,
    heads: tuple[int, int] = (HEADS, KV_HEADS),
    rel: int = REL,
    extent: int = EXTENT,
    dtype: torch.dtype = torch.float32,
) -> tuple[Any, ...]:
    """Return sequences with `past` keys and `new` queries; rows in no block are NaN."""
    starts = starts or [0] * len(new)
    lengths = [n + p for n, p in zip(new, past, strict=True)]
    counts = [-(-(n - s) // BLOCK) for n, s in zip(lengths, starts, strict=True)]
    spare, width = 3, max(counts) + 2
    order = torch.randperm(sum(counts) + spare, generator=torch.Generator().manual_seed(2))
    tables = torch.zeros(len(new), width, dtype=torch.int64)
    caches = [randn(len(order), BLOCK, heads[1], DIM, seed=i, dtype=dtype) for i in (0, 1)]
    for row, blocks in enumerate(order[spare:].split(counts)):
        tables[row, : len(blocks)] = blocks
    for cache in caches:
        cache[order[:spare]] = torch.nan
    layout = KeyLayout(
        slot_mapping=torch.empty(0, dtype=torch.int64, device=DEVICE),
        block_table=tables.to(DEVICE),
        first_blocks=(None,) * len(new),
        starts=tuple(starts),
        lengths=tuple(lengths),
        starts_device=torch.tensor(starts, dtype=torch.int32, device=DEVICE),
        lengths_device=torch.tensor(lengths, dtype=torch.int32, device=DEVICE),
    )
    tensors = (
        2 * randn(sum(new), heads[0], DIM, dtype=dtype),
        randn(sum(new), heads[0], rel, dtype=dtype),
        randn(rel, extent, dtype=dtype),
        *caches,
    )
    return *(x.to(DEVICE) for x in tensors), Segments.from_lengths(new, DEVICE), layout


def attend(arguments: tuple[Any, ...], rule: AttentionRule) -> Tensor:
    with use_backend(Backend.TRITON):
        return relative_attention(*arguments, rule)


def assert_equals_reference(arguments: tuple[Any, ...], rule: AttentionRule) -> None:
    got, want = attend(arguments, rule), relative_attention_reference(*arguments, rule)
    assert got.dtype == want.dtype
    tolerance = TOLERANCES[want.dtype] * want.abs().max().item()
    torch.testing.assert_close(got, want, atol=tolerance, rtol=0)


@ANY_RULE
def test_decode_equals_the_reference(rule: AttentionRule) -> None:
    assert_equals_reference(case(ONES, PAST), rule)


@ANY_RULE
def test_prefill_equals_the_reference(rule: AttentionRule) -> None:
    assert_equals_reference(case([5, 19, 3, 8], [0, 2, 70, 40]), rule)


@ANY_RULE
def test_a_mix_of_one_and_several_new_tokens_equals_the_reference(rule: AttentionRule) -> None:
    assert_equals_reference(case([1, 9, 1, 2, 1], [50, 0, 0, 33, 7]), rule)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_every_dtype_is_close_to_its_reference(dtype: torch.dtype) -> None:
    assert_equals_reference(case([1, 11], [50, 6], dtype=dtype), RULES["log scaling"])


@pytest.mark.parametrize("heads", [(1, 1), (5, 1), (4, 4), (40, 2)], ids=str)
def test_any_grouping_of_heads_equals_the_reference(heads: tuple[int, int]) -> None:
    assert_equals_reference(case([1, 9], [20, 4], heads=heads), RULES["log scaling"])


@pytest.mark.parametrize(("rel", "extent"), [(1, 1), (16, 64), (17, 400)], ids=str)
def test_any_extent_and_number_of_features_equals_the_reference(rel: int, extent: int) -> None:
    assert_equals_reference(case([1, 9], [90, 100], rel=rel, extent=extent), RULES["global"])


def test_blocks_that_the_window_has_left_behind_are_not_looked_for() -> None:
    rule = AttentionRule(window=9)
    assert_equals_reference(case([1, 3, 1], [25, 26, 8], starts=[16, 12, 0]), rule)


@pytest.mark.parametrize(
    ("span", "most", "rule"),
    [(64, 8, "global"), (64, 2, "log scaling"), (128, 8, "global"), (64, 4, "window of one")],
)
def test_splits_are_joined_whether_full_partial_or_empty(
    span: int, most: int, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("GLOBAL", "SLIDING"):
        monkeypatch.setattr(kernels, f"{kind}_SPAN", span)
        monkeypatch.setattr(kernels, f"{kind}_SPLITS", most)
    assert_equals_reference(case(ONES, [0, 63, 64, 200, 129], heads=(3, 1)), RULES[rule])
    assert_equals_reference(case([1, 4], [200, 2], heads=(3, 1)), RULES[rule])


def test_a_sequence_is_cut_alike_in_every_batch() -> None:
    """Only then does it give the same bits, whatever is beside it."""
    alone = case([1], [700], heads=(2, 1))
    queries, relatives, profiles, keys, values, _, layout = alone
    others = [torch.cat([x, x + 1, x - 1]) for x in (queries, relatives)]
    table = torch.zeros(3, 600, dtype=torch.int64, device=DEVICE)
    table[0, : layout.block_table.shape[1]] = layout.block_table[0]
    lengths = (701, 1, 2)
    batch = KeyLayout(
        slot_mapping=layout.slot_mapping,
        block_table=table,
        first_blocks=(None,) * 3,
        starts=(0,) * 3,
        lengths=lengths,
        starts_device=torch.zeros(3, dtype=torch.int32, device=DEVICE),
        lengths_device=torch.tensor(lengths, dtype=torch.int32, device=DEVICE),
    )
    segments = Segments.from_lengths([1, 1, 1], DEVICE)
    together = (*others, profiles, keys, values, segments, batch)
    rule = RULES["log scaling"]
    assert torch.equal(attend(alone, rule)[0], attend(together, rule)[0])


@pytest.mark.parametrize(
    ("new", "past", "launches"),
    [([1, 1], [3, 4], {"attend_kernel": 1}), ([5, 1], [3, 4], {"attend_kernel": 2}),
     ([7, 2], [3, 4], {"attend_kernel": 1}),
     ([1, 1], [3, 600], {"attend_kernel": 1, "join_kernel": 1})],
    ids=["decode", "mixed", "prefill", "split decode"],
)  # fmt: skip
def test_no_launch_is_made_that_has_nothing_to_do(
    new: list[int], past: list[int], launches: dict[str, int]
) -> None:
    with count_launches() as count:
        attend(case(new, past, heads=(2, 1)), RULES["global"])
    assert count == launches
