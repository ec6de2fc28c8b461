"""Text whose characters remember where they stand, through assignments and word splitting.

Places are offsets into the shell text. The trap: a character that an escape or a default made has
a place of another length, or none; what is built from it cannot be changed in place.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from inkling_cli.checks.launch.parse.shell_words import Part

Place = tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Traced:
    """A text and, for each character, its place.

    `unknown` holds the expansions in it that have no value here, without their `$`.
    """

    text: str
    places: tuple[Place, ...]
    unknown: tuple[str, ...] = ()

    def split(self) -> "list[Traced]":
        """Return the pieces between blanks, as the shell splits an unquoted expansion."""
        found = re.finditer(r"[^ \t\n]+", self.text)
        return [self._piece(match.start(), match.end()) for match in found]

    def after(self, start: int) -> "Traced":
        """Return the text without its first characters."""
        return self._piece(start, len(self.text))

    def _piece(self, start: int, end: int) -> "Traced":
        text = self.text[start:end]
        return Traced(text, self.places[start:end], self.unknown if "$" in text else ())

    @property
    def span(self) -> tuple[int, int] | None:
        """The one unbroken place of the whole text, or None."""
        places = [place for place in self.places if place is not None]
        if not places or len(places) < len(self.places):
            return None
        for (_, end), (start, _) in pairwise(places):
            if end != start:
                return None
        return places[0][0], places[-1][1]


def untraced(text: str) -> Traced:
    """Return a text whose characters stand nowhere."""
    return Traced(text, (None,) * len(text))


def unknown_text(inner: str) -> Traced:
    """Return what stands for an expansion without a value: one word, with a `$` in it."""
    is_plain = re.fullmatch(r"\w+|[@*#?$!-]|\(.*", inner, re.DOTALL)
    text = f"${inner}" if is_plain else f"${{{inner}}}"
    shown = re.sub(r"\s.*", "…" + text[-1], text, flags=re.DOTALL)
    return Traced(shown, (None,) * len(shown), (inner,))


def trace_part(part: Part) -> Traced:
    """Return the text of a part that needs no expansion."""
    if part.start < 0:
        return untraced(part.text)
    if part.end - part.start == len(part.text):
        places = tuple((i, i + 1) for i in range(part.start, part.end))
        return Traced(part.text, places)
    return Traced(part.text, ((part.start, part.end),) * len(part.text))


def join(pieces: Iterable[Traced]) -> Traced:
    """Return pieces one after the other."""
    kept = [piece for piece in pieces if piece.text]
    if len(kept) == 1:
        return kept[0]
    return Traced(
        "".join(piece.text for piece in kept),
        tuple(place for piece in kept for place in piece.places),
        tuple(dict.fromkeys(name for piece in kept for name in piece.unknown)),
    )
