"""Going on from what an earlier prompt computed gives what computing it again gives."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tiny_adapters import random_factors
from tiny_models import random_ids

from inkling_runtime.llm import LLM, Completion, Request, SamplingParams

MakeLLM = Callable[..., LLM]
GREEDY = SamplingParams(max_tokens=14, temperature=0)


def assert_same(got: Completion, want: Completion) -> None:
    assert got.token_ids == want.token_ids
    np.testing.assert_allclose(got.logprobs, want.logprobs, atol=1e-5)


@pytest.mark.parametrize("chunk", [512, 7, 1])
@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("adapter", [None, "a"])
def test_conversations_go_on_as_if_they_were_computed_anew(
    make_llm: MakeLLM, adapter: str | None, block_size: int, chunk: int
) -> None:
    options = {"block_size": block_size, "max_batch_tokens": chunk}
    reusing, computing = make_llm(**options), make_llm(**options, reuse_prefixes=False)
    for llm in (reusing, computing):
        llm.load_adapter("a", random_factors(llm.spec, 1))
    prompt = random_ids(37)
    for turn in range(3):
        got, want = (llm.generate([prompt], GREEDY, adapter)[0] for llm in (reusing, computing))
        assert_same(got, want)
        prompt = [*prompt, *got.token_ids, *random_ids(3 + turn, turn)]
    assert computing.stats.tokens_reused == 0
    expected = sum((length - 1) // block_size * block_size for length in (37 + 14, 37 + 31))
    assert reusing.stats.tokens_reused == expected
    fewer = computing.stats.tokens_computed - reusing.stats.tokens_computed
    assert fewer == reusing.stats.tokens_reused


def test_prompts_that_run_at_the_same_time_share_their_beginning(make_llm: MakeLLM) -> None:
    llm, alone = make_llm(block_size=4, max_sequences=3), make_llm(reuse_prefixes=False)
    system = random_ids(30)
    prompts = [[*system, *random_ids(1 + seed, seed)] for seed in range(9)]
    params = [replace(GREEDY, max_tokens=3 + 2 * seed) for seed in range(9)]
    requests = [Request(p, s) for p, s in zip(prompts, params, strict=True)]
    for got, want in zip(llm.generate(requests), alone.generate(requests), strict=True):
        assert_same(got, want)
    # Those that were admitted first began together.
    assert llm.stats.tokens_reused >= 6 * 28 - 4


def test_adapters_and_the_base_model_do_not_share_but_equal_contents_do(
    make_llm: MakeLLM,
) -> None:
    llm = make_llm(block_size=4)
    for name, seed in (("a", 1), ("b", 2), ("a again", 1)):
        llm.load_adapter(name, random_factors(llm.spec, seed, scaling=2.0))
    prompt, reused = random_ids(21), []
    for name in (None, "a", "b", "a again", "a", None):
        before = llm.stats.tokens_reused
        llm.generate([prompt], GREEDY, name)
        reused.append(llm.stats.tokens_reused - before)
    assert reused == [0, 0, 0, 20, 20, 20]


def test_a_prompt_that_is_scored_is_computed_whole(make_llm: MakeLLM) -> None:
    llm = make_llm(block_size=4)
    prompt = random_ids(21)
    scored = replace(GREEDY, prompt_logprobs=True)
    first = llm.generate([prompt], scored)
    assert llm.generate([prompt], scored) == first
    assert llm.logits(prompt).shape[0] == 21
    assert llm.stats.tokens_reused == 0


def test_reuse_goes_on_under_pressure_and_results_stay_right(make_llm: MakeLLM) -> None:
    """The cache has room for little more than what runs."""
    computing = make_llm(reuse_prefixes=False)
    llm = make_llm(block_size=4, max_sequences=4, max_batch_tokens=16, cache_memory=600_000)
    beginnings = [random_ids(24, seed) for seed in range(5)]
    requests = [
        Request([*beginnings[i % 5], *random_ids(1 + i % 7, 50 + i)], GREEDY) for i in range(30)
    ]
    for got, want in zip(llm.generate(requests), computing.generate(requests), strict=True):
        assert_same(got, want)
    assert llm.stats.tokens_reused > 0
    assert llm.stats.kept_prefixes < computing.stats.tokens_computed // 4 // 4


def test_a_request_larger_than_the_cache_fails_alone(make_llm: MakeLLM) -> None:
    llm = make_llm(block_size=4, max_sequences=2, max_batch_tokens=8, cache_memory=200_000)
    small, large = Request(random_ids(9), GREEDY), Request(random_ids(380), GREEDY)
    (want,) = make_llm().generate([small])
    first, failed, last = llm.generate([small, large, small])
    assert_same(first, want)
    assert_same(last, want)
    assert failed.error is not None
    assert failed.error.message.startswith("394 tokens need 99 blocks of 4 tokens in global layers")
