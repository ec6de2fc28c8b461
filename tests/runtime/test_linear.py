from collections.abc import Callable

import pytest
import torch
from op_cases import TOLERANCES, assert_close, randn
from torch import Tensor

from inkling_runtime.ops.linear import linear, linear_by_blocks, linear_reference


@pytest.mark.parametrize("op", [linear, linear_by_blocks])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(("tokens", "out_features"), [(0, 5), (1, 5), (3, 7), (7, 1100), (133, 1)])
def test_both_ways_equal_the_reference(
    op: Callable[[Tensor, Tensor], Tensor], tokens: int, out_features: int, dtype: torch.dtype
) -> None:
    x, weight = randn(tokens, 513, dtype=dtype), randn(out_features, 513, dtype=dtype)
    assert_close(op(x, weight), linear_reference(x, weight))
