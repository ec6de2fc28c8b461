import pytest
import torch
from op_cases import TOLERANCES, assert_close, randn

from inkling_runtime.ops.rms_norm import (
    add_rms_norm,
    add_rms_norm_reference,
    rms_norm,
    rms_norm_reference,
)
from inkling_runtime.ops.silu_and_mul import silu_and_mul, silu_and_mul_reference

DTYPES = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)


@DTYPES
@pytest.mark.parametrize("shape", [(7, 24), (1, 24), (5, 3, 8), (0, 24)])
def test_rms_norm_equals_its_reference(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, weight = 3 * randn(*shape, dtype=dtype), randn(shape[-1], dtype=dtype)
    assert_close(rms_norm(x, weight, 1e-6), rms_norm_reference(x, weight, 1e-6))


@DTYPES
def test_add_rms_norm_returns_the_norm_of_the_sum_and_the_sum(dtype: torch.dtype) -> None:
    x, residual = randn(7, 24, dtype=dtype), randn(7, 24, seed=1, dtype=dtype)
    weight = randn(24, dtype=dtype)
    normed, total = add_rms_norm(x, residual, weight, 1e-6)
    want_normed, want_total = add_rms_norm_reference(x, residual, weight, 1e-6)
    assert_close(normed, want_normed)
    assert torch.equal(total, want_total)


def test_rms_norm_of_zeros_is_zero_and_eps_counts() -> None:
    weight = torch.ones(8)
    assert torch.equal(rms_norm(torch.zeros(2, 8), weight, 1e-6), torch.zeros(2, 8))
    small = torch.full((1, 8), 1e-3)
    assert_close(rms_norm(small, weight, 1e-6), small * (2e-6) ** -0.5)


@DTYPES
@pytest.mark.parametrize("shape", [(7, 24), (2, 3, 10), (0, 4)])
def test_silu_and_mul_equals_its_reference(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    gate_up = 3 * randn(*shape, dtype=dtype)
    before = gate_up.clone()
    assert_close(silu_and_mul(gate_up), silu_and_mul_reference(gate_up))
    assert torch.equal(gate_up, before)
