"""A sampled reply split into thinking, text and tool calls, by token id.

By id, never by text: a reply that spells a marker stays text. Works as tokens come, and on a reply
that was cut: an open message counts up to where it was cut.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from inkling_runtime.chat.prompt import STOP_ID
from inkling_runtime.chat.tokenizer import TextStream, Tokenizer

MESSAGE_MODEL, END_MESSAGE = 200001, 200010
_ROLE_IDS = frozenset(range(200000, 200004))


class PartKind(Enum):
    """What a message of a reply is."""

    THINKING = "thinking"
    TEXT = "text"
    TOOL_CALL = "tool call"


_KIND_IDS = {
    200008: PartKind.THINKING,
    200004: PartKind.TEXT,
    200049: PartKind.TOOL_CALL,
    200057: PartKind.TEXT,
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of text of one part; `starts` marks the first piece of a message."""

    kind: PartKind
    text: str
    starts: bool = False


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call: the tool's name and its arguments, or the raw text where it is not JSON."""

    name: str | None
    args: Any
    raw: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply."""

    thinking: str
    text: str
    tool_calls: tuple[ToolCall, ...]


class ReplySplitter:
    """Turn token ids into pieces as they come."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._kind: PartKind | None = PartKind.TEXT
        self._stream = TextStream(tokenizer)
        self._is_new = True

    def add(self, token_id: int) -> Iterator[Piece]:
        """Yield the pieces that this token completes.

        A reply that begins without a header is text. Between a role and a kind stands the
        author's name, which is no part of the reply.
        """
        if token_id in _ROLE_IDS:
            yield from self.finish()
            self._kind = None
        elif token_id in _KIND_IDS:
            yield from self.finish()
            self._begin(_KIND_IDS[token_id])
        elif token_id in (END_MESSAGE, STOP_ID):
            yield from self.finish()
            self._begin(PartKind.TEXT)
        elif self._kind is not None:
            yield from self._give(self._stream.add(token_id))

    def finish(self) -> Iterator[Piece]:
        """Yield what is still held back, at the end of a message or of the reply."""
        if self._kind is not None:
            yield from self._give(self._stream.finish())

    def _begin(self, kind: PartKind) -> None:
        self._kind, self._stream, self._is_new = kind, TextStream(self._tokenizer), True

    def _give(self, text: str) -> Iterator[Piece]:
        if text and self._kind is not None:
            yield Piece(self._kind, text, self._is_new)
            self._is_new = False


def parse_reply(ids: Sequence[int], tokenizer: Tokenizer) -> Reply:
    """Return the parts of a reply."""
    splitter = ReplySplitter(tokenizer)
    pieces = [piece for token_id in ids for piece in splitter.add(token_id)]
    return join_pieces([*pieces, *splitter.finish()])


def join_pieces(pieces: Sequence[Piece]) -> Reply:
    """Return the reply that pieces make."""
    calls: list[str] = []
    text = {PartKind.THINKING: "", PartKind.TEXT: ""}
    for piece in pieces:
        if piece.kind is not PartKind.TOOL_CALL:
            text[piece.kind] += piece.text
        elif piece.starts:
            calls.append(piece.text)
        else:
            calls[-1] += piece.text
    return Reply(
        text[PartKind.THINKING], text[PartKind.TEXT], tuple(_parse_call(call) for call in calls)
    )


def _parse_call(raw: str) -> ToolCall:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return ToolCall(None, None, raw)
    if not isinstance(value, dict):
        return ToolCall(None, None, raw)
    name = value.get("name")
    return ToolCall(name if isinstance(name, str) else None, value.get("args"), raw)
