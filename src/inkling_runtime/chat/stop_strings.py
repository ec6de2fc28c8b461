"""Ending a reply at a text: what may begin a stop string is held back until it is clear.

So what is given out never holds a part of the stop string that ends the reply. A stop string is
looked for in each part of a reply by itself: thinking, text, each tool call.
"""

from collections.abc import Iterable, Sequence

from inkling_runtime.chat.reply import PartKind, Piece


class StopStrings:
    """Cuts the pieces of one reply at the first stop string.

    Args:
        stops: the strings, none empty; without any, pieces pass as they are.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._kind = PartKind.TEXT
        self._held = ""
        self._starts = False
        self.is_found = False
        """Whether the reply has ended."""

    def cut(self, pieces: Iterable[Piece]) -> list[Piece]:
        """Return what of new pieces can be given out."""
        given: list[Piece] = []
        for piece in pieces:
            if self.is_found:
                break
            if piece.starts:
                given += self.finish()
                self._kind, self._starts = piece.kind, True
            self._held += piece.text
            given += self._give(self._end_of_safe_text())
        return given

    def finish(self) -> list[Piece]:
        """Return what is still held back, at the end of a part or of the reply."""
        return self._give(len(self._held))

    def _end_of_safe_text(self) -> int:
        """Return how much of the held text is before any stop string, whole or begun.

        Of several the one that is complete first counts, in however many pieces the text comes.
        """
        found = [
            (place + len(stop), place)
            for stop in self._stops
            if (place := self._held.find(stop)) >= 0
        ]
        if found:
            self.is_found = True
            return min(found)[1]
        longest = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        return len(self._held) - longest

    def _give(self, end: int) -> list[Piece]:
        text, self._held = self._held[:end], "" if self.is_found else self._held[end:]
        if not text:
            return []
        starts, self._starts = self._starts, False
        return [Piece(self._kind, text, starts)]


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of the text are the beginning of a stop string."""
    lengths = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((length for length in lengths if text.endswith(stop[:length])), 0)
