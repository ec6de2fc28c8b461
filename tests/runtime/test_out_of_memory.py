"""A step that finds no memory is taken back; its newest sequences end, the others go on."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import random_ids

from inkling_runtime.engine.out_of_memory import is_out_of_memory
from inkling_runtime.engine.step_input import StepInput
from inkling_runtime.llm import LLM, SamplingParams

MakeLLM = Callable[..., LLM]
GREEDY = SamplingParams(max_tokens=9, temperature=0)
PROMPTS = [random_ids(5 + 3 * seed, seed) for seed in range(4)]


class Starved:
    """An executor that computes, and then asks for far too much, if a step has many sequences."""

    def __init__(self, executor: Any, most: int, method: str) -> None:
        self.executor, self.most, self.method = executor, most, method

    def forward(self, step: StepInput) -> None:
        self.executor.forward(step)
        self.starve("forward", len(step.lengths))

    def logits(self, rows: Sequence[int], adapters: Sequence[int]) -> torch.Tensor:
        self.starve("logits", len(rows))
        return self.executor.logits(rows, adapters)

    def starve(self, method: str, size: int) -> None:
        if method == self.method and size > self.most:
            torch.empty(1 << 61, dtype=torch.uint8)


def starve(llm: LLM, most: int, method: str = "forward") -> None:
    llm._engine.executor = Starved(llm._engine.executor, most, method)


@pytest.mark.parametrize("method", ["forward", "logits"])
def test_the_oldest_requests_go_on_as_if_nothing_had_happened(
    make_llm: MakeLLM, method: str
) -> None:
    want = make_llm().generate(PROMPTS, GREEDY)
    llm = make_llm(max_batch_tokens=6)
    starve(llm, 2, method)
    got = llm.generate(PROMPTS, GREEDY)
    ended = [completion for completion in got if completion.error is not None]
    assert 1 <= len(ended) < len(PROMPTS)
    for completion, wanted in zip(got, want, strict=True):
        if completion.error is None:
            assert completion.token_ids == wanted.token_ids
            np.testing.assert_allclose(completion.logprobs, wanted.logprobs, atol=1e-5)
        else:
            assert completion.error.message.startswith("there is no memory for the request: ")
            assert completion.token_ids == wanted.token_ids[: len(completion.token_ids)]
    assert got[0].error is None
    assert llm.stats.used_blocks == llm.stats.running == 0


def test_seeds_are_kept_over_a_step_that_is_taken_back(make_llm: MakeLLM) -> None:
    params = SamplingParams(max_tokens=9, temperature=2.0, seed=3)
    want = make_llm().generate(PROMPTS, params)
    llm = make_llm()
    starve(llm, 2, "logits")
    got = llm.generate(PROMPTS, params)
    assert [one.token_ids for one in got[:2]] == [one.token_ids for one in want[:2]]


def test_where_there_is_no_memory_for_one_sequence_each_ends_in_an_error(
    make_llm: MakeLLM,
) -> None:
    llm = make_llm()
    starve(llm, 0)
    assert [one.finish_reason for one in llm.generate(PROMPTS, GREEDY)] == ["error"] * 4


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
        (NotImplementedError("out of memory"), False),
    ],
    ids=repr,
)
def test_only_allocators_are_out_of_memory(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) == expected


def test_the_allocator_of_a_cpu_is_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 61, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
