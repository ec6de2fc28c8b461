"""The facade: what requests get, in which order, and what they are refused for."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_adapters import random_factors
from tiny_models import UNPADDED, VOCAB, make_text_model, random_ids, save

from inkling_runtime.errors import InklingError
from inkling_runtime.llm import LLM, Request, SamplingParams, TokenEvent

MakeLLM = Callable[..., LLM]
GREEDY = SamplingParams(max_tokens=8, temperature=0)
RANDOM = SamplingParams(max_tokens=25, temperature=1.5, top_p=0.95, top_k=40, seed=7)


def is_at_rest(llm: LLM) -> bool:
    """Return whether no sequence owns anything."""
    return (llm.stats.used_blocks, llm.stats.running, llm.stats.waiting) == (0, 0, 0)


def test_a_seed_gives_the_same_tokens_in_any_batch(llm: LLM, make_llm: MakeLLM) -> None:
    request = Request(random_ids(9), RANDOM)
    others = [Request(random_ids(4 + i, i), replace(RANDOM, seed=i)) for i in range(6)]
    (alone,) = llm.generate([request])
    small = make_llm(max_batch_tokens=11, max_sequences=3)
    for place in (0, 3, 6):
        batch = [*others[:place], request, *others[place:]]
        assert small.generate(batch)[place].token_ids == alone.token_ids


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


def test_padded_ids_are_not_sampled_even_if_their_rows_are_huge(tmp_path: Path) -> None:
    model = make_text_model()
    with torch.no_grad():
        model.lm_head.weight[UNPADDED:] = 1e4 * model.lm_head.weight[: VOCAB - UNPADDED]
    llm = LLM(save(model, tmp_path), device="cpu")
    for params in (replace(GREEDY, top_logprobs=UNPADDED + 9), RANDOM):
        (completion,) = llm.generate([random_ids(7)], params)
        assert max(completion.token_ids) < UNPADDED
    assert llm.logits([1]).shape == (1, UNPADDED)


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


def test_log_probabilities_are_those_of_the_whole_text(make_llm: MakeLLM) -> None:
    prompt = random_ids(30)
    for chunk in (512, 7):
        llm = make_llm(max_batch_tokens=chunk)
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
    llm: LLM, make_llm: MakeLLM, count: int, chunk: int, running: int
) -> None:
    requests = [
        Request(random_ids(1 + 3 * i, i), replace(GREEDY, max_tokens=2 + i)) for i in range(count)
    ]
    want = llm.generate(requests)
    llm = make_llm(max_batch_tokens=chunk, max_sequences=running)
    events: dict[int, list[TokenEvent]] = defaultdict(list)
    for event in llm.stream(requests):
        events[event.request].append(event)
    for index, completion in enumerate(want):
        assert [event.token_id for event in events[index]] == completion.token_ids
        reasons = [event.finish_reason for event in events[index]]
        assert reasons == [None] * (1 + index) + ["length"]
    assert is_at_rest(llm)


def test_tokens_come_as_they_are_made(llm: LLM) -> None:
    stream = llm.stream([Request([1, 2], GREEDY), Request([3], GREEDY)])
    assert [next(stream).request for _ in range(4)] == [0, 1, 0, 1]
    stream.close()


def test_closing_or_losing_a_stream_gives_back_what_its_requests_own(llm: LLM) -> None:
    requests = [Request(random_ids(5), GREEDY), Request(random_ids(50), GREEDY)]
    stream = llm.stream(requests)
    next(stream)
    assert llm.stats.used_blocks > 0
    stream.close()
    assert is_at_rest(llm)
    assert list(stream) == []
    stream = llm.stream(requests)
    next(stream)
    del stream
    assert is_at_rest(llm)


class InterruptedByFirstToken(tuple[int, ...]):
    """Stop ids that press Ctrl-C when a token is compared with them."""

    def __contains__(self, token_id: object) -> bool:
        raise KeyboardInterrupt


def test_an_interrupt_within_a_step_passes_through_and_the_model_goes_on(llm: LLM) -> None:
    want = llm.generate([Request(random_ids(5), GREEDY)])
    interrupted = replace(GREEDY, stop_ids=InterruptedByFirstToken())
    other = llm.stream([Request(random_ids(6), GREEDY)])
    next(other)
    with pytest.raises(KeyboardInterrupt):
        llm.generate([Request(random_ids(5), interrupted)])
    assert is_at_rest(llm)
    assert list(other)[-1].finish_reason == "error"
    assert llm.generate([Request(random_ids(5), GREEDY)]) == want


def test_a_cancelled_request_ends_and_the_others_go_on(llm: LLM) -> None:
    requests = [Request(random_ids(5, seed), GREEDY) for seed in range(3)]
    want = [completion.token_ids for completion in llm.generate(requests)]
    with llm.stream(requests) as stream:
        first = [next(stream) for _ in range(3)]
        stream.cancel(1)
        events = [*first, *stream]
        got = stream.completions()
    assert [completion.finish_reason for completion in got] == ["length", "cancelled", "length"]
    assert [completion.token_ids for completion in got] == [want[0], want[1][:1], want[2]]
    last = [event for event in events if event.request == 1][-1]
    assert (last.token_id, last.finish_reason) == (None, "cancelled")
    assert is_at_rest(llm)
    assert (llm.stats.requests_finished, llm.stats.requests_cancelled) == (5, 1)


def test_a_waiting_request_can_be_cancelled(make_llm: MakeLLM) -> None:
    llm = make_llm(max_sequences=1)
    stream = llm.stream([Request(random_ids(5), GREEDY), Request(random_ids(4), GREEDY)])
    next(stream)
    stream.cancel(1)
    assert [event.request for event in stream] == [1] + [0] * 7


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
        (Request([], GREEDY), "the prompt is empty, expected at least one token"),
        (Request([5, 61], GREEDY), "the prompt has the token id 61, expected 0 to 60"),
        (Request([-1], GREEDY), "the prompt has the token id -1, expected 0 to 60"),
        (Request([1] * 401, GREEDY), "the prompt has 401 tokens, the model reads at most 400"),
        (
            Request([1] * 393, GREEDY),
            "the prompt has 393 tokens and asks for up to 8 more, the model reads at most 400",
        ),
        (Request([1], replace(GREEDY, top_p=2)), "top_p is 2, expected more than 0 and at most 1"),
        (
            Request([1], replace(GREEDY, stop=("x",))),
            "the stop string 'x' cannot be found in token ids",
        ),
        (Request([1], GREEDY, "x"), "no adapter named `x` is loaded; none is loaded"),
    ],
    ids=["empty", "padded id", "negative id", "prompt", "length", "sampling", "stop", "adapter"],
)
def test_a_request_that_cannot_be_done_ends_in_an_error_and_the_others_go_on(
    llm: LLM, request_: Request, message: str
) -> None:
    (want,) = llm.generate([Request([1], GREEDY)])
    before, wrong, after = llm.generate([Request([1], GREEDY), request_, Request([1], GREEDY)])
    assert before.token_ids == after.token_ids == want.token_ids
    assert wrong.finish_reason == "error"
    assert wrong.token_ids == []
    assert wrong.error is not None
    assert wrong.error.message == message


def test_lists_of_ids_take_one_sampling_and_one_adapter_or_one_for_each(llm: LLM) -> None:
    llm.load_adapter("a", random_factors(llm.spec, 1))
    prompts = [random_ids(5, 1), random_ids(7, 2)]
    for lora, names in (("a", ["a", "a"]), (None, [None, None]), ([None, "a"], [None, "a"])):
        requests = [Request(p, GREEDY, n) for p, n in zip(prompts, names, strict=True)]
        assert llm.generate(prompts, GREEDY, lora) == llm.generate(requests)


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([[1], [2]], {"lora": ["a"]}, "there are 1 adapters for 2 prompts, expected one for each"),
        (
            [Request([1])],
            {"lora": "a"},
            "a `Request` has its own sampling and adapter, expected neither `sampling` nor `lora` "
            "beside it",
        ),
        ([1, 2], {}, "a prompt is 1, expected a list of token ids"),
        (["text"], {}, "a prompt is 'text', expected a list of token ids"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(
    llm: LLM, prompts: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InklingError) as caught:
        llm.generate(prompts, **options)
    assert caught.value.message == message


def test_a_request_of_no_tokens_only_scores_its_prompt(llm: LLM) -> None:
    prompt = random_ids(20)
    params = SamplingParams(max_tokens=0, prompt_logprobs=True)
    (completion,) = llm.generate([prompt], params)
    assert completion.token_ids == []
    assert completion.finish_reason == "length"
    assert completion.prompt_logprobs == llm.log_probs(prompt).tolist()


@pytest.mark.parametrize("max_tokens", [0, 3])
def test_the_first_event_of_a_stream_tells_of_the_prompt(llm: LLM, max_tokens: int) -> None:
    prompt = random_ids(20)
    params = replace(GREEDY, max_tokens=max_tokens, prompt_logprobs=True)
    first, *others = llm.stream([prompt], params)
    assert first.prompt_logprobs == llm.log_probs(prompt).tolist()
    assert [event.prompt_logprobs for event in others] == [None] * (max_tokens - 1 if others else 0)
    assert next(llm.stream([prompt], GREEDY)).prompt_logprobs is None


def test_the_most_probable_ids_are_told_with_each_token(llm: LLM) -> None:
    prompt = random_ids(9)
    params = replace(GREEDY, max_tokens=3, top_logprobs=4)
    told, untold = llm.generate([Request(prompt, params), Request(prompt, GREEDY)])
    assert untold.top_logprobs is None
    assert told.top_logprobs is not None
    logits = llm.logits(prompt + told.token_ids).log_softmax(-1)[len(prompt) - 1 : -1]
    for place, row in zip(told.top_logprobs, logits, strict=True):
        assert [token for token, _ in place] == row.topk(4).indices.tolist()
        assert [value for _, value in place] == pytest.approx(row.topk(4).values.tolist(), abs=1e-5)
    assert [place[0][0] for place in told.top_logprobs] == told.token_ids


def test_ignoring_stops_goes_on_to_the_last_token(llm: LLM) -> None:
    prompt = random_ids(6)
    (free,) = llm.generate([prompt], GREEDY)
    params = replace(GREEDY, stop_ids=tuple(range(UNPADDED)), ignore_stop=True)
    assert llm.generate([prompt], params) == [free]


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
            "max_sequences is 0, expected at least 1",
        ),
        ({"device": "cpu", "max_loras": 0}, "max_loras is 0, expected at least 1"),
        (
            {"device": "cpu", "cache_memory": "lots"},
            "cache_memory is `lots`, expected `auto` or a number of bytes",
        ),
        (
            {"device": "cpu", "cache_memory": 1000},
            "cache_memory is 1000 bytes, one sequence needs at least 442368",
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
