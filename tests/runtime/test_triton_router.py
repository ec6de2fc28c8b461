"""The router's kernels against the reference: hidden sizes that do not fill a span, one launch or
torch for the logits, and ties."""

import pytest
import torch
from op_cases import randn
from torch import Tensor
from triton_device import DEVICE, MARKS

from inkling_runtime.ops.backend import Backend, use_backend
from inkling_runtime.ops.kernels import router as kernels
from inkling_runtime.ops.kernels.launch import count_launches
from inkling_runtime.ops.router import route_tokens, route_tokens_reference

pytestmark = MARKS

HIDDEN, EXPERTS, SHARED = 70, 21, 2


def route(x: Tensor, weight: Tensor, bias: Tensor, top_k: int, scale: float) -> list[Tensor]:
    with use_backend(Backend.TRITON):
        got = route_tokens(x.to(DEVICE), weight.to(DEVICE), bias.to(DEVICE), top_k, scale)
    assert [y.dtype for y in got] == [torch.int64, torch.float32, torch.float32]
    return [y.cpu() for y in got]


def assert_equals_reference(
    x: Tensor, weight: Tensor, bias: Tensor, top_k: int, scale: float = 1.7
) -> None:
    got = route(x, weight, bias, top_k, scale)
    want = route_tokens_reference(x, weight, bias, top_k, scale)
    assert torch.equal(got[0], want[0])
    for one, other in zip(got[1:], want[1:], strict=True):
        torch.testing.assert_close(one, other, atol=4e-6 * scale, rtol=0)


@pytest.mark.parametrize("top_k", [1, 3, EXPERTS])
@pytest.mark.parametrize("tokens", [1, 3, 13])
def test_selection_and_weights_equal_the_reference(tokens: int, top_k: int) -> None:
    weight, bias = randn(EXPERTS + SHARED, HIDDEN), 0.3 * randn(EXPERTS)
    assert_equals_reference(randn(tokens, HIDDEN), weight, bias, top_k)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_activations_of_half_the_size_are_widened_first(dtype: torch.dtype) -> None:
    weight, bias = randn(EXPERTS + SHARED, HIDDEN), 0.3 * randn(EXPERTS)
    assert_equals_reference(randn(5, HIDDEN, dtype=dtype), weight, bias, 4)


@pytest.mark.parametrize("hidden", [1, 512, 513, 1200])
def test_spans_of_the_hidden_size_add_up(hidden: int) -> None:
    weight, bias = randn(5, hidden) * hidden**-0.5, torch.zeros(4)
    assert_equals_reference(randn(2, hidden), weight, bias, 2)


def test_torch_computes_the_logits_of_many_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MOST_TOKENS", 4)
    x, weight, bias = randn(5, HIDDEN), randn(EXPERTS + SHARED, HIDDEN), 0.3 * randn(EXPERTS)
    with count_launches() as launches:
        assert_equals_reference(x[:4], weight, bias, 3)
    assert launches == {"logits_kernel": 1, "select_kernel": 1}
    with count_launches() as launches:
        assert_equals_reference(x, weight, bias, 3)
    assert launches == {"select_kernel": 1}


def test_without_shared_experts_the_selected_ones_have_all_the_weight() -> None:
    weight = randn(EXPERTS, HIDDEN)
    ids, weights, gammas = route(randn(3, HIDDEN), weight, torch.zeros(EXPERTS), 3, 2.0)
    assert gammas.shape == (3, 0)
    torch.testing.assert_close(weights.sum(1), torch.full((3,), 2.0))
    assert ids.shape == (3, 3)


@pytest.mark.parametrize("logit", [0.0, 40.0, -80.0], ids="logit {}".format)
def test_ties_go_to_the_smaller_id(logit: float) -> None:
    weight = torch.full((EXPERTS + SHARED, 1), logit)
    assert_equals_reference(torch.ones(2, 1), weight, torch.zeros(EXPERTS), 5)


def test_sigmoids_that_saturate_are_ties_though_the_logits_differ() -> None:
    weight = torch.linspace(30, 40, EXPERTS + SHARED)[:, None]
    ids, _, _ = route(torch.ones(1, 1), weight, torch.zeros(EXPERTS), 4, 1.0)
    assert ids.tolist() == [[0, 1, 2, 3]]


def test_ties_in_the_middle_keep_their_order() -> None:
    weight = torch.tensor([1.0, 3, 2, 3, 2, 3, 0])[:, None]
    ids, _, _ = route(torch.ones(1, 1), weight, torch.zeros(6), 5, 1.0)
    assert ids.tolist() == [[1, 3, 5, 2, 4]]


def test_logits_so_low_that_every_sigmoid_vanishes_are_ties_and_still_give_weights() -> None:
    weight = torch.linspace(-200, -300, EXPERTS + SHARED)[:, None]
    ids, weights, gammas = route(torch.ones(1, 1), weight, torch.zeros(EXPERTS), 2, 1.0)
    assert ids.tolist() == [[0, 1]]
    want = weight[[0, 1, EXPERTS, EXPERTS + 1], 0].softmax(0)
    torch.testing.assert_close(torch.cat([weights, gammas], 1)[0], want)


def test_the_bias_selects_but_does_not_weigh() -> None:
    bias = torch.arange(EXPERTS, dtype=torch.float32)
    ids, weights, gammas = route(torch.ones(1, 1), torch.zeros(EXPERTS + SHARED, 1), bias, 2, 1.0)
    assert ids.tolist() == [[EXPERTS - 1, EXPERTS - 2]]
    torch.testing.assert_close(torch.cat([weights, gammas], 1), torch.full((1, 4), 0.25))


def test_logits_that_are_no_numbers_select_experts_that_exist() -> None:
    x = torch.full((1, HIDDEN), torch.nan)
    ids, _, _ = route(x, randn(EXPERTS + SHARED, HIDDEN), torch.zeros(EXPERTS), 4, 1.0)
    assert ids.tolist() == [[0, 1, 2, 3]]


def test_a_token_is_routed_alike_in_every_batch() -> None:
    x, weight, bias = randn(11, HIDDEN), randn(EXPERTS + SHARED, HIDDEN), randn(EXPERTS)
    together = route(x, weight, bias, 3, 1.0)
    for t in (0, 10):
        alone = route(x[t : t + 1], weight, bias, 3, 1.0)
        assert all(torch.equal(a[0], b[t]) for a, b in zip(alone, together, strict=True))
