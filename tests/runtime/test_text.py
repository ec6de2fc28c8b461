"""Text out of the demo model, which counts: stop strings, and what has no text to stop at."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from inkling_runtime.text import ReplyForm, Request, SamplingParams, TextLLM

MODEL = Path(str(files("inkling_cli") / "demo_data" / "model"))
SAMPLING = SamplingParams(max_tokens=8, temperature=0)
TEXT = "6 7 8 9 10 11 12 13"


@pytest.fixture(scope="module")
def text_llm() -> TextLLM:
    return TextLLM(MODEL, device="cpu")


def run(
    text_llm: TextLLM, params: Sequence[SamplingParams], form: ReplyForm = ReplyForm.TEXT
) -> list[tuple[list[str], str | None]]:
    """Return the texts that came for each prompt, token by token, and why it ended."""
    requests = [Request(text_llm.encode("3 4 5"), one) for one in params]
    texts: list[list[str]] = [[] for _ in params]
    reasons: list[str | None] = [None] * len(params)
    for event in text_llm.stream(requests, [form] * len(params)):
        assert reasons[event.token.request] is None
        texts[event.token.request].append("".join(piece.text for piece in event.pieces))
        reasons[event.token.request] = event.token.finish_reason
    return list(zip(texts, reasons, strict=True))


@pytest.mark.parametrize(
    ("stop", "text", "reason"),
    [
        ((), TEXT, "length"),
        (("8 9",), "6 7 ", "stop"),
        (("8 11", "10 1"), "6 7 8 9 ", "stop"),
        (("11 12 14",), TEXT, "length"),
        (("3 4",), TEXT, "length"),
        (("13",), "6 7 8 9 10 11 12 ", "stop"),
        (("6",), "", "stop"),
    ],
)
def test_a_reply_ends_before_its_first_stop_string(
    text_llm: TextLLM, stop: tuple[str, ...], text: str, reason: str
) -> None:
    ((texts, found),) = run(text_llm, [replace(SAMPLING, stop=stop)])
    assert ("".join(texts), found) == (text, reason)


def test_text_comes_with_its_token_unless_it_may_begin_a_stop_string(text_llm: TextLLM) -> None:
    ((texts, _),) = run(text_llm, [replace(SAMPLING, stop=(" 8 10", "11 12"))])
    assert texts == ["6", " 7", "", " 8 9", " 10", " ", ""]


def test_a_reply_at_its_stop_string_frees_its_place_and_the_others_go_on(
    text_llm: TextLLM,
) -> None:
    before = text_llm.llm.stats.requests_cancelled
    params = [replace(SAMPLING, stop=("7",)), SAMPLING]
    (first, reason), (second, _) = run(text_llm, params)
    assert ("".join(first), reason) == ("6 ", "stop")
    assert "".join(second) == TEXT
    assert text_llm.llm.stats.requests_cancelled == before + 1
    assert text_llm.llm.stats.running == 0


def test_stops_can_be_ignored(text_llm: TextLLM) -> None:
    params = replace(SAMPLING, stop=("7",), stop_ids=(9,), ignore_stop=True)
    ((texts, reason),) = run(text_llm, [params])
    assert reason == "length"
    assert "13" in "".join(texts)


@pytest.mark.parametrize(
    ("form", "stop", "message"),
    [
        (ReplyForm.IDS, ("7",), "the stop string '7' cannot be found in token ids"),
        (ReplyForm.TEXT, ("7", ""), "a stop string is empty, expected at least one character"),
    ],
)
def test_stop_strings_that_cannot_be_found_end_the_request_in_an_error(
    text_llm: TextLLM, form: ReplyForm, stop: tuple[str, ...], message: str
) -> None:
    requests = [Request([3], replace(SAMPLING, stop=stop)), Request([3], SAMPLING)]
    events = list(text_llm.stream(requests, [form] * 2))
    (error,) = [event.token.error for event in events if event.token.error is not None]
    assert error.message == message
    assert len(events) == 1 + 8
