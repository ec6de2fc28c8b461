from dataclasses import replace

import pytest
import torch
from op_cases import CPU, TOLERANCES, assert_close, randn, slots

from inkling_runtime.ops.conv_plan import ConvPlan
from inkling_runtime.ops.lora_slots import LoraPart
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.qkvr_prologue import (
    HeadShape,
    PrologueState,
    PrologueWeights,
    qkvr_prologue,
    qkvr_prologue_reference,
)
from inkling_runtime.ops.segments import Segments
from inkling_runtime.ops.token_adapters import TokenAdapters

SHAPE = HeadShape(num_heads=6, num_kv_heads=2, head_dim=8, d_rel=3)
BLOCK = 4


def weights(dtype: torch.dtype) -> PrologueWeights:
    width = SHAPE.widths[1]
    norms = (1 + 0.3 * randn(8, seed=3)).to(dtype), (1 + 0.3 * randn(8, seed=4)).to(dtype)
    return PrologueWeights(randn(4, width), randn(4, width, seed=2), *norms, eps=1e-5)


def state(dtype: torch.dtype) -> PrologueState:
    width = SHAPE.widths[1]
    caches = [randn(5, BLOCK, 2, 8, seed=seed, dtype=dtype) for seed in (5, 6)]
    return PrologueState(
        randn(9, 3, width, dtype=dtype), randn(9, 3, width, seed=1, dtype=dtype), *caches
    )


def copy(old: PrologueState) -> PrologueState:
    return PrologueState(
        old.k_conv.clone(), old.v_conv.clone(), old.key_cache.clone(), old.value_cache.clone()
    )


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("lengths", [[1], [7], [1, 1, 1], [4, 1, 3]], ids=str)
@pytest.mark.parametrize("ids", [[-1, -1, -1], [1, -1, 0]], ids=["base", "mixed"])
def test_queries_relatives_cache_and_states_equal_the_reference(
    lengths: list[int], ids: list[int], dtype: torch.dtype
) -> None:
    tokens, count = sum(lengths), len(lengths)
    projected = randn(tokens, sum(SHAPE.widths), dtype=dtype)
    adapters = TokenAdapters.from_ids(
        [a for a, n in zip(ids, lengths, strict=False) for _ in range(n)], CPU
    )
    parts = (LoraPart(0, 48, slots(7, 48, dtype)), LoraPart(64, 80, slots(7, 16, dtype)))
    pending = PendingDelta(randn(2, tokens, 12), parts, (0, 6), adapters)
    plan = ConvPlan.make(Segments.from_lengths(lengths, CPU), [1, 0, 5][:count], [1, 7, 5][:count])
    mapping = torch.randperm(5 * BLOCK, generator=torch.Generator().manual_seed(1))[:tokens]
    got_state, want_state = state(dtype), state(dtype)
    rest = (SHAPE, weights(dtype))
    q, r = qkvr_prologue(projected.clone(), pending, *rest, got_state, plan, mapping)
    want_q, want_r = qkvr_prologue_reference(projected, pending, *rest, want_state, plan, mapping)
    assert_close(q, want_q)
    assert_close(r, want_r)
    for name in ("k_conv", "v_conv", "key_cache", "value_cache"):
        assert_close(getattr(got_state, name), getattr(want_state, name))


def test_only_the_rows_of_the_step_are_written() -> None:
    before = state(torch.float32)
    after = copy(before)
    plan = ConvPlan.make(Segments.from_lengths([2], CPU), [3], [4])
    mapping = torch.tensor([6, 13])
    projected = randn(2, sum(SHAPE.widths))
    qkvr_prologue(projected, None, SHAPE, weights(torch.float32), after, plan, mapping)
    for old, new in (
        (before.key_cache, after.key_cache),
        (before.value_cache, after.value_cache),
    ):
        changed = (old != new).flatten(0, 1).flatten(1).any(1)
        assert changed.nonzero()[:, 0].tolist() == [6, 13]
    for old, new in ((before.k_conv, after.k_conv), (before.v_conv, after.v_conv)):
        assert (old != new).flatten(1).any(1).nonzero()[:, 0].tolist() == [4]


def test_values_are_convolved_but_never_normed() -> None:
    plan = ConvPlan.make(Segments.from_lengths([1], CPU), [0], [0])
    empty = PrologueState(*(torch.zeros_like(t) for t in vars_of(state(torch.float32))))
    quiet = replace(weights(torch.float32), v_conv=torch.zeros(4, 16))
    projected = randn(1, sum(SHAPE.widths))
    qkvr_prologue(projected.clone(), None, SHAPE, quiet, empty, plan, torch.tensor([2]))
    assert torch.equal(empty.value_cache[0, 2].flatten(), projected[0, 64:80])


def vars_of(value: PrologueState) -> tuple[torch.Tensor, ...]:
    return value.k_conv, value.v_conv, value.key_cache, value.value_cache
