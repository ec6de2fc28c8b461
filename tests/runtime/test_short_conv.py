import pytest
import torch
from op_cases import CPU, TOLERANCES, assert_close, randn, slots

from inkling_runtime.ops.conv_plan import ConvPlan
from inkling_runtime.ops.lora_slots import LoraPart
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.segments import Segments
from inkling_runtime.ops.short_conv import short_conv, short_conv_reference
from inkling_runtime.ops.token_adapters import TokenAdapters

CHANNELS = 6


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("num_taps", [1, 2, 4])
@pytest.mark.parametrize("lengths", [[1], [9], [1, 1, 1], [5, 1, 2, 3, 4]], ids=str)
def test_output_and_state_equal_the_reference(
    lengths: list[int], num_taps: int, dtype: torch.dtype
) -> None:
    segments = Segments.from_lengths(lengths, CPU)
    x = randn(sum(lengths), CHANNELS, dtype=dtype)
    weight = randn(num_taps, CHANNELS)
    state = randn(7, num_taps - 1, CHANNELS, dtype=dtype)
    want_state = state.clone()
    slots = [4, 0, 6, 2, 1][: len(lengths)]
    plan = ConvPlan.make(segments, slots, slots)
    y = short_conv(x, weight, state, plan)
    assert_close(y, short_conv_reference(x, weight, want_state, plan))
    assert torch.equal(state, want_state)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_states_of_points_within_a_chunk_are_those_of_the_shorter_chunk(dtype: torch.dtype) -> None:
    segments = Segments.from_lengths([5, 1, 3], CPU)
    x, weight = randn(9, CHANNELS, dtype=dtype), randn(4, CHANNELS)
    state = randn(12, 3, CHANNELS, dtype=dtype)
    shorter, want_state = state.clone(), state.clone()
    plan = ConvPlan.make(segments, [0, 1, 2], [3, 1, 5], [(6, 0, 2), (7, 2, 3), (8, 0, 4)])
    y = short_conv(x, weight, state, plan)
    assert_close(y, short_conv_reference(x, weight, want_state, plan))
    assert torch.equal(state, want_state)
    for slot, end in ((6, 2), (8, 4)):
        part = Segments.from_lengths([end], CPU)
        short_conv(x[:end], weight, shorter, ConvPlan.make(part, [0], [slot]))
        assert torch.equal(state[slot], shorter[slot])
    assert torch.equal(state[0], shorter[0])


def test_the_residual_and_pending_deltas_are_added() -> None:
    segments, state = Segments.from_lengths([3, 1], CPU), torch.zeros(2, 3, CHANNELS)
    x, residual, weight = randn(4, CHANNELS), randn(4, CHANNELS, seed=1), randn(4, CHANNELS)
    sites, adapters = slots(7, CHANNELS), TokenAdapters.from_ids([1, 1, 1, -1], CPU)
    delta = PendingDelta(randn(2, 4, 9), (LoraPart(0, CHANNELS, sites),), (3,), adapters)
    plan, want_state = ConvPlan.make(segments, [0, 1], [0, 1]), state.clone()
    y = short_conv(x.clone(), weight, state, plan, residual=residual, pending=(delta,))
    want = short_conv_reference(x, weight, want_state, plan, residual=residual, pending=(delta,))
    assert_close(y, want)
    assert_close(state, want_state)
    z = delta.shrunk.sum(0)[:3, 3:8]
    pair = sites[1]
    assert pair is not None
    assert_close(state[0], x[:3] + pair.scaling * z @ pair.b.T)


def test_any_split_into_steps_gives_the_same_output() -> None:
    x, weight = randn(11, CHANNELS), randn(4, CHANNELS)

    def run(lengths: list[int]) -> torch.Tensor:
        state, parts = torch.zeros(1, 3, CHANNELS), []
        for part in x.split(lengths):
            segments = Segments.from_lengths([len(part)], CPU)
            parts.append(short_conv(part, weight, state, ConvPlan.make(segments, [0], [0])))
        return torch.cat(parts)

    whole = run([11])
    assert_close(run([1] * 11), whole)
    assert_close(run([2, 5, 1, 3]), whole)


def test_the_last_tap_is_the_current_token_and_the_residual_is_inside() -> None:
    x = randn(5, CHANNELS)
    weight = torch.zeros(4, CHANNELS)
    weight[3] = 2.0
    state = torch.zeros(1, 3, CHANNELS)
    plan = ConvPlan.make(Segments.from_lengths([5], CPU), [0], [0])
    y = short_conv(x, weight, state, plan)
    assert torch.equal(y, 3 * x)


def test_sequences_do_not_see_each_other() -> None:
    x, weight = randn(6, CHANNELS), randn(4, CHANNELS)
    both = ConvPlan.make(Segments.from_lengths([4, 2], CPU), [0, 1], [0, 1])
    y = short_conv(x, weight, torch.zeros(2, 3, CHANNELS), both)
    second = ConvPlan.make(Segments.from_lengths([2], CPU), [1], [1])
    alone = short_conv(x[4:], weight, torch.zeros(2, 3, CHANNELS), second)
    assert torch.equal(y[4:], alone)
