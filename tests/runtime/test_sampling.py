import math
import random

import pytest
import torch
from op_cases import randn

from inkling_runtime.engine.sampling import SamplingParams, sample
from inkling_runtime.errors import InklingError

LOGITS = torch.tensor([[0.5, 2.0, -1.0, 1.5, 0.0]])
PROBS = LOGITS[0].softmax(-1)


def frequencies(params: SamplingParams, count: int = 4000) -> torch.Tensor:
    """Return how often each id is chosen over evenly spread draws."""
    draws = [(i + 0.5) / count for i in range(count)]
    ids, _ = sample(LOGITS.expand(count, -1), [params] * count, draws)
    return torch.bincount(torch.tensor(ids), minlength=LOGITS.shape[1]) / count


def test_greedy_takes_the_most_probable_and_the_smaller_id_of_equal_ones() -> None:
    params = [SamplingParams(temperature=0), SamplingParams(temperature=5, top_k=1)]
    logits = torch.tensor([[0.0, 3.0, 3.0], [2.0, 1.0, 2.0]])
    assert sample(logits, params, [0.9, 0.9])[0] == [1, 0]


def test_the_log_probability_is_the_models_own() -> None:
    params = SamplingParams(temperature=0.3, top_k=2)
    ids, logprobs = sample(LOGITS, [params], [0.999])
    assert logprobs[0] == pytest.approx(PROBS[ids[0]].log().item(), abs=1e-6)


def test_draws_follow_the_distribution() -> None:
    assert torch.allclose(frequencies(SamplingParams()), PROBS, atol=1e-3)
    hot = (LOGITS[0] / 3).softmax(-1)
    assert torch.allclose(frequencies(SamplingParams(temperature=3)), hot, atol=1e-3)


def test_top_k_keeps_the_k_most_probable() -> None:
    want = PROBS * (PROBS.topk(3).values[-1] <= PROBS)
    got = frequencies(SamplingParams(top_k=3))
    assert torch.allclose(got, want / want.sum(), atol=1e-3)
    assert torch.equal(frequencies(SamplingParams(top_k=50)), frequencies(SamplingParams()))


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    ordered = PROBS.sort(descending=True).values
    two = (ordered[0] + ordered[1]).item()
    for top_p, kept in ((two - 0.01, 2), (two + 0.01, 3), (1e-9, 1)):
        got = frequencies(SamplingParams(top_p=top_p))
        want = PROBS * (ordered[kept - 1] <= PROBS)
        assert torch.allclose(got, want / want.sum(), atol=1e-3)


def test_top_p_counts_within_what_top_k_left() -> None:
    got = frequencies(SamplingParams(top_k=2, top_p=0.5))
    assert got[LOGITS[0].argmax()] == 1


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(top_p=0.7)])
@pytest.mark.parametrize("draw", [0.0, 1 - 2**-53])
def test_the_ends_of_the_range_of_draws_give_possible_tokens(
    params: SamplingParams, draw: float
) -> None:
    logits = torch.tensor([[-math.inf, 1.0, 0.0, -math.inf]])
    (token,), (logprob,) = sample(logits, [params], [draw])
    assert token in (1, 2)
    assert math.isfinite(logprob)


@pytest.mark.parametrize("temperature", [5e-324, 1e-300])
def test_no_temperature_is_too_small(temperature: float) -> None:
    ids, _ = sample(LOGITS - 7, [SamplingParams(temperature=temperature)], [0.99])
    assert ids == [1]


def test_a_tiny_temperature_is_greedy() -> None:
    assert frequencies(SamplingParams(temperature=1e-30))[1] == 1


def test_rows_are_chosen_one_by_one() -> None:
    logits = randn(6, 50)
    params = [
        SamplingParams(temperature=0),
        SamplingParams(),
        SamplingParams(top_k=5),
        SamplingParams(top_p=0.4),
        SamplingParams(temperature=2, top_k=9, top_p=0.9),
        SamplingParams(top_k=1),
    ]
    rng = random.Random(0)
    draws = [rng.random() for _ in params]
    together = sample(logits, params, draws)[0]
    alone = [sample(logits[i : i + 1], [params[i]], [draws[i]])[0][0] for i in range(len(params))]
    assert together == alone


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (SamplingParams(max_tokens=-1), "max_tokens is -1, expected 0 or more"),
        (SamplingParams(temperature=-1), "temperature is -1, expected 0 or more"),
        (SamplingParams(temperature=math.nan), "temperature is nan, expected 0 or more"),
        (SamplingParams(top_p=0), "top_p is 0, expected more than 0 and at most 1"),
        (SamplingParams(top_p=1.5), "top_p is 1.5, expected more than 0 and at most 1"),
        (SamplingParams(top_k=-1), "top_k is -1, expected 0 or more"),
        (SamplingParams(top_logprobs=-1), "top_logprobs is -1, expected 0 or more"),
        (
            SamplingParams(stop=("x", "")),
            "a stop string is empty, expected at least one character",
        ),
    ],
    ids=str,
)
def test_values_out_of_range_are_refused(params: SamplingParams, message: str) -> None:
    with pytest.raises(InklingError) as caught:
        params.require_valid()
    assert caught.value.message == message
