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
from inkling_runtime.chat.stop_strings import StopStrings
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
        options: as of `LLM`.

    Raises:
        InklingError: as of `LLM`, or the tokenizer file is broken.
    """

    def __init__(self, model: Path, **options: Any) -> None:
        self.llm = LLM(model, **options)
        self.model = model
        self.tokenizer: Tokenizer | None = find_tokenizer(model, self.llm.spec)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end a sequence by themselves: the end of a turn in Inkling's vocabulary."""
        return (STOP_ID,) if isinstance(self.tokenizer, InklingTokenizer) else ()

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text.

        Raises:
            InklingError: the model has no tokenizer, or the text is none.
        """
        tokenizer = self._require_tokenizer()
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InklingError(
                f"the text has no character at place {error.start}, but {text[error.start]!r}; "
                "expected Unicode text"
            ) from error
        return tokenizer.encode(text)

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], effort: float) -> list[int]:
        """Return the token ids of chat messages.

        Raises:
            InklingError: the vocabulary is not Inkling's, or a message cannot be rendered.
        """
        if not isinstance(self.tokenizer, InklingTokenizer):
            raise InklingError(
                f"`{self.model}` does not have Inkling's vocabulary, which chat prompts need",
                "give the prompt as a text or as token ids",
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
        """Return an iterator over the tokens of all requests, with the text that they complete.

        A reply ends before the first of its stop strings (`SamplingParams.stop`), no part of which
        is given out; its token ids are those that were generated until then. Where a reply has no
        text, a request with stop strings cannot be done.
        """
        asked, replies = [], []
        for request, form in zip(requests, forms, strict=True):
            sampling, stops = request.sampling, ()
            if self._can_stop(sampling, form):
                stops = () if sampling.ignore_stop else sampling.stop
                sampling = replace(sampling, stop=())
            stop_ids = (*self.stop_ids, *sampling.stop_ids)
            asked.append(replace(request, sampling=replace(sampling, stop_ids=stop_ids)))
            replies.append(_Reply(self._writer(form), StopStrings(stops), stop_ids))
        return self._iter_events(asked, replies)

    def _iter_events(
        self, requests: Sequence[Request], replies: "Sequence[_Reply]"
    ) -> Iterator[TextEvent]:
        with self.llm.stream(requests) as stream:
            for event in stream:
                reply = replies[event.request]
                if reply.is_at_stop:
                    continue
                pieces = reply.add(event)
                if reply.is_at_stop:
                    stream.cancel(event.request)
                    event = replace(event, finish_reason="stop")
                yield TextEvent(event, pieces)

    def _can_stop(self, sampling: SamplingParams, form: ReplyForm) -> bool:
        """Whether stop strings can be looked for; where not, the engine says so."""
        return form is not ReplyForm.IDS and self.tokenizer is not None and "" not in sampling.stop

    def _writer(self, form: ReplyForm) -> "ReplySplitter | _PlainWriter":
        if form is ReplyForm.CHAT:
            return ReplySplitter(self._require_tokenizer())
        return _PlainWriter(None if form is ReplyForm.IDS else self.tokenizer)

    def _require_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InklingError(
                f"`{self.model}` has no `tokenizer.json` and not Inkling's vocabulary",
                "give the prompt as token ids (`--prompt-ids`)",
            )
        return self.tokenizer


class _Reply:
    """One reply as it comes: its tokens, their text, its end."""

    def __init__(
        self,
        writer: "ReplySplitter | _PlainWriter",
        stops: StopStrings,
        stop_ids: Sequence[int],
    ) -> None:
        self._writer, self._stops, self._stop_ids = writer, stops, frozenset(stop_ids)

    @property
    def is_at_stop(self) -> bool:
        """Whether a stop string was found."""
        return self._stops.is_found

    def add(self, event: TokenEvent) -> tuple[Piece, ...]:
        pieces: list[Piece] = []
        if event.token_id is not None and event.token_id not in self._stop_ids:
            pieces += self._stops.cut(self._writer.add(event.token_id))
        if event.finish_reason is not None:
            pieces += self._stops.cut(self._writer.finish())
            if not self.is_at_stop:
                pieces += self._stops.finish()
        return tuple(pieces)


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
