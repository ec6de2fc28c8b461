"""Batches that mix adapters give every sequence what it gets alone, and what PEFT gives it.

Prompts are ragged, share beginnings (so that prefixes are reused) and are read in chunks. The
whole distribution at every generated token is compared, not only the token.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from peft_oracles import EVERYTHING, ROUTED, WARNINGS, with_adapter
from tiny_adapters import peft_factors
from tiny_models import UNPADDED, oracle_logits, random_ids
from torch import Tensor
from transformers import InklingForCausalLM

from inkling_runtime.llm import LLM, Completion, Request, SamplingParams

pytestmark = [pytest.mark.filterwarnings(text) for text in WARNINGS]
MakeLLM = Callable[..., LLM]
Names = tuple[str | None, ...]

SAMPLING = SamplingParams(max_tokens=5, temperature=0, top_logprobs=UNPADDED)
MIXES: dict[str, Names] = {
    "none": (None,),
    "one": ("a",),
    "two and none": ("a", None, "b"),
    "under two names": ("a", "b", "a again", None),
}
LOGPROB_ERROR = 2e-5


@pytest.fixture(scope="module")
def adapted(text_model: InklingForCausalLM) -> dict[str | None, Any]:
    """Return PEFT's model of each name."""
    first = with_adapter(text_model, 1, **EVERYTHING)
    second = with_adapter(
        text_model, 2, r=2, target_modules=["v_proj", "o_proj"], target_parameters=ROUTED
    )
    return {None: text_model, "a": first, "b": second, "a again": first}


def load_all(llm: LLM, adapted: dict[str | None, Any]) -> None:
    for name in ("a", "b", "a again"):
        llm.load_adapter(name, peft_factors(adapted[name]))


def make_prompts(count: int) -> list[list[int]]:
    """Return ragged prompts of which each fourth begins alike."""
    beginnings = [random_ids(3 + 5 * seed, seed) for seed in range(4)]
    return [[*beginnings[i % 4], *random_ids(1 + (7 * i) % 11, 100 + i)] for i in range(count)]


def distributions(completion: Completion) -> Tensor:
    """Return the log-probabilities of all ids at every generated token."""
    assert completion.top_logprobs is not None
    table = torch.zeros(len(completion.top_logprobs), UNPADDED)
    for row, place in zip(table, completion.top_logprobs, strict=True):
        ids, values = zip(*place, strict=True)
        row[list(ids)] = torch.tensor(values)
    return table


@pytest.mark.parametrize("count", [1, 7, 33])
@pytest.mark.parametrize("names", MIXES.values(), ids=MIXES)
def test_every_sequence_of_a_mixed_batch_is_that_of_peft_and_that_of_its_own_run(
    make_llm: MakeLLM, adapted: dict[str | None, Any], names: Names, count: int
) -> None:
    llm = make_llm(max_batch_tokens=13, max_sequences=9, block_size=4)
    alone = make_llm(max_loras=1, reuse_prefixes=False)
    load_all(llm, adapted)
    load_all(alone, adapted)
    prompts = make_prompts(count)
    chosen = [names[i % len(names)] for i in range(count)]
    completions = llm.generate(prompts, SAMPLING, chosen)
    for prompt, name, got in zip(prompts, chosen, completions, strict=True):
        (single,) = alone.generate([prompt], SAMPLING, name)
        assert got.token_ids == single.token_ids
        tokens = [*prompt, *got.token_ids]
        want = oracle_logits(adapted[name], tokens).log_softmax(-1)[len(prompt) - 1 : -1]
        largest = 1.0
        if name is not None:
            base = oracle_logits(adapted[None], tokens).log_softmax(-1)[len(prompt) - 1 : -1]
            largest = (want - base).abs().max().item()
            assert largest > 0.05
        assert (distributions(got) - want).abs().max() < LOGPROB_ERROR * largest
    assert (llm.stats.tokens_reused > 0) == (count == 33)


def test_the_base_is_bit_identical_in_an_engine_with_and_without_adapters(
    make_llm: MakeLLM, adapted: dict[str | None, Any]
) -> None:
    """Even beside requests with adapters, as long as the steps hold the same tokens."""
    prompts = make_prompts(7)
    without, with_adapters = make_llm(max_batch_tokens=13), make_llm(max_batch_tokens=13)
    load_all(with_adapters, adapted)
    want = without.generate(prompts, SAMPLING)
    assert with_adapters.generate(prompts, SAMPLING) == want


def test_a_seeded_request_samples_the_same_beside_any_others(
    make_llm: MakeLLM, adapted: dict[str | None, Any]
) -> None:
    llm = make_llm(max_batch_tokens=9, max_sequences=5, block_size=4)
    load_all(llm, adapted)
    params = SamplingParams(max_tokens=12, temperature=1.3, top_p=0.9, seed=5)
    request = Request(random_ids(11), params, "a")
    (want,) = llm.generate([request])
    others = [Request(prompt, SAMPLING, "b") for prompt in make_prompts(8)]
    for place in (0, 4, 8):
        got = llm.generate([*others[:place], request, *others[place:]])[place]
        assert got.token_ids == want.token_ids
