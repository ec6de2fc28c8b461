import pytest
import torch
from op_cases import assert_close, randn

from inkling_runtime.ops.router import route_tokens, route_tokens_reference

HIDDEN, EXPERTS, SHARED = 10, 7, 2


@pytest.mark.parametrize("top_k", [1, 3, 7])
@pytest.mark.parametrize("tokens", [1, 9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_selection_and_weights_equal_the_reference(
    tokens: int, top_k: int, dtype: torch.dtype
) -> None:
    x = randn(tokens, HIDDEN, dtype=dtype)
    weight, bias = randn(EXPERTS + SHARED, HIDDEN), 0.3 * randn(EXPERTS)
    got = route_tokens(x, weight, bias, top_k, 1.7)
    want = route_tokens_reference(x, weight, bias, top_k, 1.7)
    assert torch.equal(got[0], want[0])
    assert_close(got[1], want[1])
    assert_close(got[2], want[2])
    assert got[1].dtype == torch.float32


def test_weights_of_selected_and_shared_sum_to_the_scale() -> None:
    x = randn(5, HIDDEN)
    _, weights, gammas = route_tokens(
        x, randn(EXPERTS + SHARED, HIDDEN), torch.zeros(EXPERTS), 3, 2.5
    )
    assert_close(weights.sum(1) + gammas.sum(1), torch.full((5,), 2.5))


def test_ties_go_to_the_smaller_id() -> None:
    weight = torch.zeros(EXPERTS + SHARED, HIDDEN)
    ids, _, _ = route_tokens(randn(4, HIDDEN), weight, torch.zeros(EXPERTS), 3, 1.0)
    assert ids.tolist() == [[0, 1, 2]] * 4


def test_the_bias_selects_but_does_not_weigh() -> None:
    weight = torch.zeros(EXPERTS + SHARED, HIDDEN)
    bias = torch.arange(EXPERTS, dtype=torch.float32)
    ids, weights, gammas = route_tokens(randn(1, HIDDEN), weight, bias, 2, 1.0)
    assert ids.tolist() == [[6, 5]]
    assert_close(weights, torch.full((1, 2), 0.25))
    assert_close(gammas, torch.full((1, 2), 0.25))


def test_logits_so_low_that_every_sigmoid_vanishes_still_give_weights() -> None:
    weight = torch.full((EXPERTS + SHARED, HIDDEN), -30.0)
    _, weights, gammas = route_tokens(torch.ones(1, HIDDEN), weight, torch.zeros(EXPERTS), 2, 1.0)
    assert_close(torch.cat([weights, gammas], 1), torch.full((1, 4), 0.25))
