"""The facade: what requests get, in which order, and what they are refused for."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import UNPADDED, random_ids

from inkling_runtime.errors import InklingError
from inkling_runtime.llm import LLM, Request, SamplingParams, TokenEvent

GREEDY = SamplingParams(max_tokens=8, temperature=0)
RANDOM = SamplingParams(max_tokens=25, temperature=1.5, top_p=0.95, top_k=40, seed=7)


def blocks_in_use(llm: LLM) -> int:
    return llm._runner.cache.num_used_blocks


def test_a_seed_gives_the_same_tokens_in_any_batch(llm: LLM) -> None:
    request = Request(random_ids(9), RANDOM)
    others = [Request(random_ids(4 + i, i), replace(RANDOM, seed=i)) for i in range(6)]
    (alone,) = llm.generate([request])
    llm.max_batch_tokens, llm.max_sequences = 11, 3
    for place in (0, 3, 6):
        batch = [*others[:place], request, *others[place:]]
        assert llm.generate(batch)[place].token_ids == alone.token_ids


def test_seeds_differ_and_no_seed_is_another_one_each_time(llm: LLM) -> None:
    seeds = [replace(RANDOM, seed=seed) for seed in (1, 2, None, None)]
    completions = llm.generate([Request(random_ids(5), params) for params in seeds])
    assert len({tuple(c.token_ids) for c in completions}) == 4


def test_top_k_of_one_is_greedy(llm: LLM) -> None:
    prompt = random_ids(6)
    greedy, single = llm.generate(
        [Request(prompt, GREEDY), Request(prompt, replace(GREEDY, temperature=3, top_k=1))]
    )
    assert greedy.token_ids == single.token_ids


def test_padded_ids_are_never_sampled(llm: LLM) -> None:
    params = SamplingParams(max_tokens=200, temperature=100.0, seed=1)
    completions = llm.generate([Request([i], replace(params, seed=i)) for i in range(5)])
    seen = {token for completion in completions for token in completion.token_ids}
    assert max(seen) == UNPADDED - 1
    assert min(seen) == 0


def test_a_stop_id_ends_its_request_and_is_its_last_token(llm: LLM) -> None:
    prompt = random_ids(6)
    (free,) = llm.generate([Request(prompt, replace(GREEDY, max_tokens=20))])
    stop = free.token_ids[4]
    first = free.token_ids.index(stop)
    stopped, other = llm.generate(
        [
            Request(prompt, replace(GREEDY, max_tokens=20, stop_ids=(UNPADDED - 1, stop))),
            Request(prompt, replace(GREEDY, max_tokens=20)),
        ]
    )
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == free.token_ids[: first + 1]
    assert len(stopped.logprobs) == first + 1
    assert other.token_ids == free.token_ids
    assert other.finish_reason == "length"


def test_a_stop_id_at_the_very_last_token_counts_as_stop(llm: LLM) -> None:
    prompt = random_ids(6)
    (free,) = llm.generate([Request(prompt, replace(GREEDY, max_tokens=1))])
    params = replace(GREEDY, max_tokens=1, stop_ids=(free.token_ids[0],))
    assert llm.generate([Request(prompt, params)])[0].finish_reason == "stop"


def test_log_probabilities_are_those_of_the_whole_text(llm: LLM) -> None:
    prompt = random_ids(30)
    for chunk in (512, 7):
        llm.max_batch_tokens = chunk
        params = replace(GREEDY, prompt_logprobs=True)
        (completion,) = llm.generate([Request(prompt, params)])
        assert completion.prompt_logprobs is not None
        assert len(completion.prompt_logprobs) == len(prompt) - 1
        got = torch.tensor(completion.prompt_logprobs + completion.logprobs)
        want = llm.log_probs(prompt + completion.token_ids)
        torch.testing.assert_close(got, want, atol=1e-5, rtol=0)
    assert llm.generate([Request(prompt, GREEDY)])[0].prompt_logprobs is None


@pytest.mark.parametrize("count", [0, 1, 7])
@pytest.mark.parametrize(("chunk", "running"), [(512, 32), (5, 2), (1, 1), (3, 7)])
def test_streamed_tokens_are_the_generated_ones(
    llm: LLM, count: int, chunk: int, running: int
) -> None:
    requests = [
        Request(random_ids(1 + 3 * i, i), replace(GREEDY, max_tokens=2 + i)) for i in range(count)
    ]
    want = llm.generate(requests)
    llm.max_batch_tokens, llm.max_sequences = chunk, running
    events: dict[int, list[TokenEvent]] = defaultdict(list)
    for event in llm.stream(requests):
        events[event.request].append(event)
    for index, completion in enumerate(want):
        assert [event.token_id for event in events[index]] == completion.token_ids
        reasons = [event.finish_reason for event in events[index]]
        assert reasons == [None] * (1 + index) + ["length"]
    assert blocks_in_use(llm) == 0


def test_tokens_come_as_they_are_made(llm: LLM) -> None:
    stream = llm.stream([Request([1, 2], GREEDY), Request([3], GREEDY)])
    assert [next(stream).request for _ in range(4)] == [0, 1, 0, 1]
    stream.close()


def test_closing_or_interrupting_a_stream_gives_back_its_blocks(llm: LLM) -> None:
    for end in (GeneratorExit, KeyboardInterrupt):
        stream = llm.stream([Request(random_ids(5), GREEDY), Request(random_ids(50), GREEDY)])
        next(stream)
        assert blocks_in_use(llm) > 0
        with pytest.raises(end):
            stream.throw(end)
        assert blocks_in_use(llm) == 0


class InterruptedByFirstToken(tuple[int, ...]):
    """Stop ids that press Ctrl-C when a token is compared with them."""

    def __contains__(self, token_id: object) -> bool:
        raise KeyboardInterrupt


def test_an_interrupt_within_a_step_passes_through_and_the_model_goes_on(llm: LLM) -> None:
    want = llm.generate([Request(random_ids(5), GREEDY)])
    interrupted = replace(GREEDY, stop_ids=InterruptedByFirstToken())
    with pytest.raises(KeyboardInterrupt):
        llm.generate([Request(random_ids(5), interrupted)])
    assert blocks_in_use(llm) == 0
    assert llm.generate([Request(random_ids(5), GREEDY)]) == want


def test_two_streams_at_a_time_do_not_disturb_each_other(llm: LLM) -> None:
    requests = [Request(random_ids(5, seed), GREEDY) for seed in (1, 2)]
    want = [completion.token_ids for completion in llm.generate(requests)]
    streams = [llm.stream([request]) for request in requests]
    got = [[event.token_id for event in pair] for pair in zip(*streams, strict=True)]
    assert [list(tokens) for tokens in zip(*got, strict=True)] == want


def test_logits_can_be_used_like_any_tensor(llm: LLM) -> None:
    logits = llm.logits([1, 2, 3])
    logits += 1
    assert logits.shape == (3, UNPADDED)
    assert not logits.is_inference()


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request([], GREEDY), "the prompt of request 1 is empty, expected at least one token"),
        (
            Request([5, 61], GREEDY),
            "the prompt of request 1 has the token id 61, expected 0 to 60",
        ),
        (Request([-1], GREEDY), "the prompt of request 1 has the token id -1, expected 0 to 60"),
        (
            Request([1] * 401, GREEDY),
            "the prompt of request 1 has 401 tokens, the model reads at most 400",
        ),
        (
            Request([1] * 393, GREEDY),
            "the prompt of request 1 has 393 tokens and asks for up to 8 more, the model reads at "
            "most 400",
        ),
        (Request([1], replace(GREEDY, top_p=2)), "top_p is 2, expected more than 0 and at most 1"),
        (Request([1], GREEDY, "x"), "no adapter named `x` is loaded; none is loaded"),
    ],
    ids=["empty", "padded id", "negative id", "prompt", "length", "sampling", "adapter"],
)
def test_requests_that_cannot_be_done_are_refused_before_any_is_run(
    llm: LLM, request_: Request, message: str
) -> None:
    for run in (llm.generate, llm.stream):
        with pytest.raises(InklingError) as caught:
            run([Request([1], GREEDY), request_])
        assert caught.value.message == message


def test_the_last_position_can_be_used(llm: LLM) -> None:
    (completion,) = llm.generate([Request([1] * 392, GREEDY)])
    assert len(completion.token_ids) == 8
    assert len(llm.logits([1] * 400)) == 400


def test_lists_that_cannot_be_scored_are_refused(llm: LLM) -> None:
    for score in (llm.logits, llm.log_probs):
        for token_ids, message in (
            ([], "the list of tokens is empty, expected at least one token"),
            ([61], "the list of tokens has the token id 61, expected 0 to 60"),
            ([1] * 401, "the list of tokens has 401 tokens, the model reads at most 400"),
        ):
            with pytest.raises(InklingError) as caught:
                score(token_ids)
            assert caught.value.message == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "device `tpu` is unknown, expected `auto`, `cpu` or `cuda`"),
        ({"device": "cuda:x"}, "device `cuda:x` is unknown, expected `auto`, `cpu` or `cuda`"),
        (
            {"device": "cpu", "dtype": "int8"},
            "dtype `int8` is unknown, expected one of `auto`, `float32`, `bfloat16`",
        ),
        (
            {"device": "cpu", "max_sequences": 0},
            "max_batch_tokens is 512 and max_sequences 0, expected at least 1",
        ),
    ],
)
def test_options_out_of_range_are_refused(
    text_folder: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InklingError) as caught:
        LLM(text_folder, **options)
    assert caught.value.message == message


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_is_refused_where_there_is_none(text_folder: Path) -> None:
    with pytest.raises(InklingError) as caught:
        LLM(text_folder, device="cuda")
    assert caught.value.message == "device `cuda` is not available, torch sees 0 CUDA devices"
    assert LLM(text_folder, device="auto").device.type == "cpu"
