"""Numbers become bf16 by one rounding to nearest even, however they are rounded."""

import numpy as np
import pytest
import torch

from inkling_runtime.adapter.rounding import narrow, round_to_bf16
from inkling_runtime.errors import InklingError


def some_float32(seed: int) -> np.ndarray:
    """Return numbers of every exponent below 2¹²⁷, ties between neighbours of bf16 among them."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 0x7F00_0000, 4000, dtype=np.uint32)
    bits[::2] = (bits[::2] & 0xFFFF_0000) | 0x8000
    bits[1::4] |= 0x8000_0000
    return bits.view(np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_ordinary_numbers_round_as_torch_rounds_them(seed: int) -> None:
    numbers = some_float32(seed)
    want = torch.from_numpy(numbers).bfloat16().view(torch.uint16).numpy()
    assert np.array_equal(narrow(numbers, "BF16"), want)
    assert np.array_equal(round_to_bf16(numbers), want)


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_nan_and_infinity_stay_what_they_are_among_ordinary_numbers(value: float) -> None:
    numbers = some_float32(0)
    numbers[1] = value
    got = torch.from_numpy(narrow(numbers, "BF16")).view(torch.bfloat16).float().numpy()
    assert np.array_equal(got[1], numbers[1], equal_nan=True)
    assert np.isfinite(got[2:]).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_that_would_become_infinity_is_refused(sign: int) -> None:
    numbers = some_float32(0)
    numbers[1] = sign * np.float32(3.4e38)
    with pytest.raises(InklingError) as caught:
        narrow(numbers, "BF16")
    assert caught.value.message == ("1 element is beyond what BF16 holds, the largest is 3.4e+38")


def test_nothing_rounds_to_nothing() -> None:
    assert narrow(np.empty((0, 3), np.float32), "BF16").shape == (0, 3)
