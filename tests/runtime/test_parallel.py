"""Several ranks against one: real processes over gloo, on a CPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tiny_adapters import random_factors
from tiny_models import make_text_model, random_ids, relative_error, save

from inkling_runtime.errors import InklingError
from inkling_runtime.llm import LLM, Request, SamplingParams

GREEDY = SamplingParams(max_tokens=5, temperature=0, prompt_logprobs=True)
SIZES = {
    "num_attention_heads": 4,
    "swa_num_attention_heads": 8,
    "swa_num_key_value_heads": 4,
    "n_routed_experts": 8,
    "n_shared_experts": 3,
    "intermediate_size": 56,
    "moe_intermediate_size": 20,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(make_text_model(**SIZES), tmp_path_factory.mktemp("parallel"))


@pytest.fixture(scope="module")
def single(folder: Path) -> LLM:
    return with_adapters(LLM(folder, device="cpu"))


@pytest.fixture(
    scope="module", params=[(2, False), (2, True), (4, False)], ids=["tp2", "ep2", "tp4"]
)
def several(folder: Path, request: pytest.FixtureRequest) -> Iterator[LLM]:
    size, expert_parallel = request.param
    llm = LLM(folder, device="cpu", tensor_parallel=size, expert_parallel=expert_parallel)
    yield with_adapters(llm)
    llm.close()


def with_adapters(llm: LLM) -> LLM:
    llm.load_adapter("outer", random_factors(llm.spec, seed=1))
    llm.load_adapter("apart", random_factors(llm.spec, seed=2, rank=5, shared_outer=False))
    return llm


@pytest.mark.parametrize("adapter", [None, "outer", "apart"])
def test_logits_of_several_ranks_are_those_of_one(
    single: LLM, several: LLM, adapter: str | None
) -> None:
    ids = random_ids(23)
    want = single.logits(ids, adapter)
    got = several.logits(ids, adapter)
    assert got.shape == want.shape
    assert relative_error(got, want) < 5e-6


def test_a_batch_that_mixes_adapters_generates_what_one_rank_does(
    single: LLM, several: LLM
) -> None:
    requests = [
        Request(random_ids(9 + 4 * index, seed=index), GREEDY, adapter)
        for index, adapter in enumerate([None, "outer", "apart", "outer", None])
    ]
    want, got = single.generate(requests), several.generate(requests)
    assert [c.token_ids for c in got] == [c.token_ids for c in want]
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(torch.tensor(a.logprobs), torch.tensor(b.logprobs))


def test_an_adapter_that_does_not_fit_is_refused_and_the_ranks_go_on(several: LLM) -> None:
    wrong = random_factors(several.spec, seed=3)
    site = next(iter(wrong))
    wrong[site] = type(wrong[site])(wrong[site].a[:, 1:], wrong[site].b, "F32", 1.0)
    with pytest.raises(InklingError, match="expected"):
        several.load_adapter("wrong", wrong)
    (completion,) = several.generate([Request(random_ids(5), GREEDY)])
    assert completion.error is None
