"""Text in, text out: an `LLM` with the model's tokenizer.

Not needed for token ids: `llm.LLM` works without any tokenizer. A reply to chat messages is split
by token id into thinking, text and tool calls; a raw prompt is simply continued.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from inkling_runtime.chat.prompt import STOP_ID, render_chat
from inkling_runtime.chat.reply import PartKind, Piece, ReplySplitter
from inkling_runtime.chat.tokenizer import InklingTokenizer, TextStream, Tokenizer, find_tokenizer
from inkling_runtime.errors import InklingError
from inkling_runtime.llm import LLM, Completion, Request, SamplingParams, TokenEvent


class ReplyForm(Enum):
    """How a reply is given out."""

    TEXT = "one text"
    CHAT = "thinking, text and tool calls"
    IDS = "token ids"


@dataclass(frozen=True, slots=True)
class TextEvent:
    """A generated token of a request and the text that it completes."""

    token: TokenEvent
    pieces: tuple[Piece, ...]


class TextLLM:
    """A model that reads and writes text.

    Args:
        model: the model's folder.
        device: as of `LLM`.
        dtype: as of `LLM`.

    Raises:
        InklingError: as of `LLM`, or the tokenizer file is broken.
    """

    def __init__(self, model: Path, *, device: str = "auto", dtype: str = "auto") -> None:
        self.llm = LLM(model, device=device, dtype=dtype)
        self.model = model
        self.tokenizer: Tokenizer | None = find_tokenizer(model, self.llm.spec)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end a sequence by themselves: the end of a turn in Inkling's vocabulary."""
        return (STOP_ID,) if isinstance(self.tokenizer, InklingTokenizer) else ()

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text.

        Raises:
            InklingError: the model has no tokenizer.
        """
        return self._require_tokenizer().encode(text)

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], effort: float) -> list[int]:
        """Return the token ids of chat messages.

        Raises:
            InklingError: the vocabulary is not Inkling's, or a message cannot be rendered.
        """
        if not isinstance(self.tokenizer, InklingTokenizer):
            raise InklingError(
                f"`{self.model}` does not have Inkling's vocabulary, which chat prompts need",
                "pass `--prompt TEXT` or `--prompt-ids IDS`",
            )
        return render_chat(messages, effort)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, or the ids themselves if there is no tokenizer."""
        if self.tokenizer is None:
            return " ".join(map(str, ids))
        return self.tokenizer.decode(ids)

    def stream(
        self, requests: Sequence[Request], forms: Sequence[ReplyForm]
    ) -> Iterator[TextEvent]:
        """Yield the tokens of all requests as they come, with the text that they complete."""
        requests = [self._with_stops(request) for request in requests]
        writers = [self._writer(form) for form in forms]
        for event in self.llm.stream(requests):
            writer, request = writers[event.request], requests[event.request]
            is_stop = event.token_id in request.sampling.stop_ids
            pieces = () if is_stop else tuple(writer.add(event.token_id))
            if event.finish_reason is not None:
                pieces += tuple(writer.finish())
            yield TextEvent(event, pieces)

    def _with_stops(self, request: Request) -> Request:
        stops = (*self.stop_ids, *request.sampling.stop_ids)
        return replace(request, sampling=replace(request.sampling, stop_ids=stops))

    def _writer(self, form: ReplyForm) -> "ReplySplitter | _PlainWriter":
        if form is ReplyForm.CHAT:
            return ReplySplitter(self._require_tokenizer())
        return _PlainWriter(None if form is ReplyForm.IDS else self.tokenizer)

    def _require_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InklingError(
                f"`{self.model}` has no `tokenizer.json` and not Inkling's vocabulary",
                "pass token ids with `--prompt-ids`",
            )
        return self.tokenizer


class _PlainWriter:
    """A continuation as one text; token ids where there is no tokenizer."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._stream = TextStream(tokenizer) if tokenizer is not None else None
        self._is_new = True

    def add(self, token_id: int) -> Iterable[Piece]:
        if self._stream is None:
            text = str(token_id) if self._is_new else f" {token_id}"
        else:
            text = self._stream.add(token_id)
        return self._give(text)

    def finish(self) -> Iterable[Piece]:
        return self._give("" if self._stream is None else self._stream.finish())

    def _give(self, text: str) -> Iterable[Piece]:
        if not text:
            return ()
        piece = Piece(PartKind.TEXT, text, self._is_new)
        self._is_new = False
        return (piece,)


__all__ = ["Completion", "ReplyForm", "Request", "SamplingParams", "TextEvent", "TextLLM"]
