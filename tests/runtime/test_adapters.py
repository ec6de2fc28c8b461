"""Adapters on the runtime: shapes that fit, mixes in one batch, and a base left untouched."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_adapters import expand_shared, random_factors
from tiny_models import random_ids, relative_error

from inkling_runtime.adapter.factors import SiteFactors
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.sites import HEAD_SITE, Site, SiteKind
from inkling_runtime.errors import InklingError
from inkling_runtime.llm import LLM, Completion, Request, SamplingParams

MakeLLM = Callable[..., LLM]
GREEDY = SamplingParams(max_tokens=12, temperature=0, prompt_logprobs=True)


def delta(llm: LLM, adapter: str, token_ids: list[int]) -> torch.Tensor:
    return llm.logits(token_ids, adapter) - llm.logits(token_ids)


def load_three(llm: LLM) -> None:
    """Load adapters of different ranks: all sites, attention only, experts apart."""
    llm.load_adapter("a", random_factors(llm.spec, 1, rank=3))
    llm.load_adapter("b", random_factors(llm.spec, 2, rank=6, kinds=[SiteKind.V, SiteKind.O]))
    llm.load_adapter("c", random_factors(llm.spec, 3, rank=1, shared_outer=False))


def assert_same(got: Completion, want: Completion) -> None:
    assert got.token_ids == want.token_ids
    assert got.finish_reason == want.finish_reason
    np.testing.assert_allclose(got.logprobs, want.logprobs, atol=1e-5)
    assert got.prompt_logprobs is not None
    assert want.prompt_logprobs is not None
    np.testing.assert_allclose(got.prompt_logprobs, want.prompt_logprobs, atol=1e-5)


@pytest.mark.parametrize("chunk", [512, 4])
@pytest.mark.parametrize(
    "names",
    [
        ["a", None, "b", "a"],
        [None] * 4,
        ["a"] * 7,
        ["c", "b", "a", None, "a", "c", None],
        ["b"],
    ],
    ids=lambda names: "-".join(str(name) for name in names),
)
def test_a_mixed_batch_of_ragged_prompts_equals_single_runs(
    llm: LLM, make_llm: MakeLLM, names: list[str | None], chunk: int
) -> None:
    load_three(llm)
    requests = [
        Request(random_ids(3 + 5 * index, index), GREEDY, name) for index, name in enumerate(names)
    ]
    single = [llm.generate([request])[0] for request in requests]
    llm = make_llm(max_batch_tokens=chunk)
    load_three(llm)
    for got, want in zip(llm.generate(requests), single, strict=True):
        assert_same(got, want)


@pytest.mark.parametrize("chunk", [512, 7, 1])
def test_chunks_do_not_change_what_an_adapter_does(llm: LLM, make_llm: MakeLLM, chunk: int) -> None:
    load_three(llm)
    token_ids = random_ids(30)
    want = {name: delta(llm, name, token_ids) for name in "abc"}
    llm = make_llm(max_batch_tokens=chunk)
    load_three(llm)
    for name in "abc":
        assert relative_error(delta(llm, name, token_ids), want[name]) < 1e-5


def test_the_base_is_bit_identical_with_and_without_adapters_loaded(llm: LLM) -> None:
    token_ids, request = random_ids(40), Request(random_ids(9), GREEDY)
    logits, completion = llm.logits(token_ids), llm.generate([request])
    load_three(llm)
    llm.logits(token_ids, "a")
    assert torch.equal(llm.logits(token_ids), logits)
    assert llm.generate([request]) == completion


def test_shared_outer_factors_have_the_effect_of_their_expanded_form(llm: LLM) -> None:
    shared, token_ids = random_factors(llm.spec, 1), random_ids(30)
    expanded = expand_shared(shared, llm.spec)
    assert shared[Site(2, SiteKind.ROUTED_UP)].a.shape[0] == 1
    assert expanded[Site(2, SiteKind.ROUTED_UP)].a.shape[0] == llm.spec.num_experts
    llm.load_adapter("shared", shared)
    llm.load_adapter("expanded", expanded)
    want = delta(llm, "shared", token_ids)
    assert want.abs().max() > 0.1
    assert relative_error(delta(llm, "expanded", token_ids), want) < 1e-5


def test_head_rows_of_padded_ids_are_left_out(llm: LLM) -> None:
    factors = random_factors(llm.spec, 1, kinds=[SiteKind.HEAD])
    pair = factors[HEAD_SITE]
    padding = np.ones((llm.spec.vocab_size - llm.spec.unpadded_vocab_size, 3), np.float32)
    padded = replace(pair, b=np.concatenate([pair.b, padding]))
    llm.load_adapter("unpadded", factors)
    llm.load_adapter("padded", {HEAD_SITE: padded})
    token_ids = random_ids(5)
    assert torch.equal(llm.logits(token_ids, "padded"), llm.logits(token_ids, "unpadded"))


def test_bf16_factors_are_read_as_what_they_are(llm: LLM) -> None:
    def as_bf16(array: Any) -> Any:
        return (array.view(np.uint32) >> 16).astype(np.uint16)

    exact = random_factors(llm.spec, 1)
    halves = {
        site: replace(pair, a=as_bf16(pair.a), b=as_bf16(pair.b), dtype="BF16")
        for site, pair in exact.items()
    }
    rounded = {
        site: replace(
            pair,
            a=(pair.a.astype(np.uint32) << 16).view(np.float32),
            b=(pair.b.astype(np.uint32) << 16).view(np.float32),
            dtype="F32",
        )
        for site, pair in halves.items()
    }
    llm.load_adapter("halves", halves)
    llm.load_adapter("rounded", rounded)
    token_ids = random_ids(5)
    assert torch.equal(llm.logits(token_ids, "halves"), llm.logits(token_ids, "rounded"))


def test_read_only_and_strided_arrays_are_accepted(llm: LLM) -> None:
    factors = random_factors(llm.spec, 1, kinds=[SiteKind.Q])
    site = Site(0, SiteKind.Q)
    pair = factors[site]
    pair.a.flags.writeable = False
    factors[site] = replace(pair, b=np.asfortranarray(pair.b))
    llm.load_adapter("a", factors)
    assert llm.logits([1, 2], "a").isfinite().all()


def test_a_bf16_model_runs_adapters(text_folder: Any) -> None:
    exact = LLM(text_folder, device="cpu")
    llm = LLM(text_folder, device="cpu", dtype="bfloat16")
    token_ids = random_ids(30)
    for model in (exact, llm):
        model.load_adapter("a", random_factors(llm.spec, 1, scaling=2.0))
    want = delta(exact, "a", token_ids)
    assert (delta(llm, "a", token_ids) - want).pow(2).mean() < 0.02 * want.pow(2).mean()


def test_unloading_leaves_the_others_and_nothing_in_the_slot(llm: LLM, make_llm: MakeLLM) -> None:
    load_three(llm)
    token_ids = random_ids(10)
    want = llm.logits(token_ids, "c")
    llm.unload_adapter("a")
    assert llm.adapters == ["b", "c"]
    assert torch.equal(llm.logits(token_ids, "c"), want)
    fewer_sites = random_factors(llm.spec, 4, kinds=[SiteKind.Q])
    fresh = make_llm()
    for model in (llm, fresh):
        model.load_adapter("d", fewer_sites)
    assert torch.equal(llm.logits(token_ids, "d"), fresh.logits(token_ids, "d"))
    assert torch.equal(llm.logits(token_ids, "c"), want)
    for name in llm.adapters:
        llm.unload_adapter(name)
    assert llm.adapters == []


def test_names_that_are_not_known_are_refused(llm: LLM) -> None:
    (completion,) = llm.generate([Request([1], GREEDY, "x")])
    assert completion.error is not None
    assert completion.error.message == "no adapter named `x` is loaded; none is loaded"
    llm.load_adapter("a", random_factors(llm.spec, 1, kinds=[SiteKind.Q]))
    for use in (llm.logits, llm.log_probs):
        with pytest.raises(InklingError, match="no adapter named `x` is loaded; loaded are `a`"):
            use([1], "x")
    for change in (llm.unload_adapter, llm.pin_adapter, llm.unpin_adapter):
        with pytest.raises(InklingError, match="no adapter named `x` is loaded"):
            change("x")


def factors_of(spec: ModelSpec, site: Site, **changes: Any) -> dict[Site, SiteFactors]:
    factors = random_factors(spec, 1)
    return {site: replace(factors[site], **changes)}


def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


Q, ROUTED, SHARED = Site(0, SiteKind.Q), Site(2, SiteKind.ROUTED_UP), Site(3, SiteKind.SHARED_DOWN)


@pytest.mark.parametrize(
    ("site", "changes", "message"),
    [
        (Q, {"a": zeros(2, 40)}, "SITE has rank 2 in A and 3 in B, expected one rank"),
        (
            Q,
            {"a": zeros(0, 40), "b": zeros(48, 0)},
            "SITE has rank 0 in A and 0 in B, expected one rank",
        ),
        (Q, {"a": zeros(3, 41)}, "A of SITE takes 41, expected 40"),
        (Q, {"b": zeros(40, 3)}, "B of SITE gives 40, expected 48"),
        (Q, {"a": zeros(1, 3, 40)}, "the factors of SITE have 3 and 2 dimensions, expected 2"),
        (
            Q,
            {"dtype": "F8_E4M3"},
            "the factors of SITE have the dtype F8_E4M3, expected one of BF16, F16, F32, F64",
        ),
        (HEAD_SITE, {"b": zeros(66, 3)}, "B of SITE gives 66, expected 61 or 67"),
        (ROUTED, {"a": zeros(2, 3, 40)}, "A of SITE has 2 experts, expected 1 or 7"),
        (SHARED, {"b": zeros(40, 3)}, "the factors of SITE have 3 and 2 dimensions, expected 3"),
    ],
    ids=["rank", "rank zero", "A", "B", "dimensions", "dtype", "head", "experts", "flat"],
)
def test_factors_that_do_not_fit_are_refused_by_site(
    llm: LLM, site: Site, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InklingError) as caught:
        llm.load_adapter("a", factors_of(llm.spec, site, **changes))
    assert caught.value.message == message.replace("SITE", f"`{site}`")
    assert llm.adapters == []


def test_sites_that_the_model_does_not_have_are_refused(llm: LLM) -> None:
    pair = random_factors(llm.spec, 1)[Q]
    for site in (Site(5, SiteKind.Q), Site(0, SiteKind.ROUTED_UP), Site(2, SiteKind.DENSE_UP)):
        with pytest.raises(InklingError) as caught:
            llm.load_adapter("a", {site: pair})
        assert caught.value.message == (
            f"the adapter has the site `{site}`, which the model does not have"
        )
    with pytest.raises(InklingError, match="the adapter has no site, expected at least one"):
        llm.load_adapter("a", {})
