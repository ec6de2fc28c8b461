import pytest
import torch
from op_cases import CPU, TOLERANCES, assert_close, randn

from inkling_runtime.ops.segments import Segments
from inkling_runtime.ops.short_conv import short_conv, short_conv_reference

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
    slots = torch.tensor([4, 0, 6, 2, 1][: len(lengths)])
    y = short_conv(x, weight, state, slots, segments)
    assert_close(y, short_conv_reference(x, weight, want_state, slots, segments))
    assert torch.equal(state, want_state)


def test_any_split_into_steps_gives_the_same_output() -> None:
    x, weight = randn(11, CHANNELS), randn(4, CHANNELS)
    slot = torch.tensor([0])

    def run(lengths: list[int]) -> torch.Tensor:
        state, parts = torch.zeros(1, 3, CHANNELS), []
        for part in x.split(lengths):
            segments = Segments.from_lengths([len(part)], CPU)
            parts.append(short_conv(part, weight, state, slot, segments))
        return torch.cat(parts)

    whole = run([11])
    assert_close(run([1] * 11), whole)
    assert_close(run([2, 5, 1, 3]), whole)


def test_the_last_tap_is_the_current_token_and_the_residual_is_inside() -> None:
    x = randn(5, CHANNELS)
    weight = torch.zeros(4, CHANNELS)
    weight[3] = 2.0
    state = torch.zeros(1, 3, CHANNELS)
    y = short_conv(x, weight, state, torch.tensor([0]), Segments.from_lengths([5], CPU))
    assert torch.equal(y, 3 * x)


def test_sequences_do_not_see_each_other() -> None:
    x, weight = randn(6, CHANNELS), randn(4, CHANNELS)
    segments = Segments.from_lengths([4, 2], CPU)
    slots = torch.tensor([0, 1])
    y = short_conv(x, weight, torch.zeros(2, 3, CHANNELS), slots, segments)
    alone = short_conv(
        x[4:],
        weight,
        torch.zeros(2, 3, CHANNELS),
        slots[1:],
        Segments.from_lengths([2], CPU),
    )
    assert torch.equal(y[4:], alone)
