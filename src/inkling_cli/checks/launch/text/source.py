"""The text of a launch and exact places in it: what lets a fix change a word and nothing else.

A launch's shell text may stand inside something else: in a file with CRLF line ends, in a scalar
of a YAML file. An `Embedded` text knows, for each of its characters, where in the file it stands
and how characters are written there. Places are offsets into the file, lines count from 1.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

Put = Callable[[str], str | None]
"""How a text is written at some place of the file; None where it cannot be."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement of the file's characters from `start` up to `end`."""

    start: int
    end: int
    text: str


def apply_edits(text: str, edits: Iterable[Edit]) -> str | None:
    """Return the text with all edits made; None if two of them overlap, unless both remove."""
    pieces: list[str] = []
    position = 0
    is_removal = False
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if edit.start < position and (edit.text or not is_removal):
            return None
        pieces += [text[position : edit.start], edit.text]
        position = max(position, edit.end)
        is_removal = not edit.text
    return "".join([*pieces, text[position:]])


@dataclass(frozen=True, slots=True)
class FileText:
    """A file's whole text, and its name for people."""

    text: str
    name: str
    line_starts: tuple[int, ...] = field(repr=False, default=())

    def __post_init__(self) -> None:
        starts = (0, *(match.end() for match in re.finditer("\n", self.text)))
        object.__setattr__(self, "line_starts", starts)

    def line_of(self, offset: int) -> int:
        """Return the line of an offset, from 1."""
        return bisect_right(self.line_starts, offset)

    def line_start(self, offset: int) -> int:
        """Return where the line of an offset begins."""
        return self.line_starts[self.line_of(offset) - 1]

    def line_end(self, offset: int) -> int:
        """Return where the line of an offset ends, its line break not included."""
        end = self.text.find("\n", offset)
        end = len(self.text) if end < 0 else end
        return end - 1 if self.text[end - 1 : end] == "\r" and end - 1 >= offset else end

    @property
    def newline(self) -> str:
        """The line break that the file uses."""
        return "\r\n" if "\r\n" in self.text else "\n"


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """A text that stands in a file.

    Attributes:
        file: the file.
        text: the text as it is meant, escapes and indentation undone.
        starts: for each character of it, where what stands for it in the file begins.
        ends: and where that ends.
        put: how characters are written at this place.
    """

    file: FileText
    text: str
    starts: Sequence[int]
    ends: Sequence[int]
    put: Put

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the place in the file of the characters from `start` up to `end`."""
        if start < end:
            return self.starts[start], self.ends[end - 1]
        if start < len(self.text):
            return self.starts[start], self.starts[start]
        last = self.ends[-1] if len(self.ends) else 0
        return last, last

    def line(self, index: int) -> int:
        """Return the file's line of a character."""
        return self.file.line_of(self.span(index, index)[0])

    def edit(self, start: int, end: int, text: str) -> Edit | None:
        """Return the edit that replaces characters by a text; None if it cannot stand there."""
        written = self.put(text)
        return None if written is None else Edit(*self.span(start, end), written)


def unchangeable(file: FileText, text: str, start: int, end: int) -> Embedded:
    """Return a text that stands at one place of a file as a whole; nothing can be written there.

    It has lines, and no more: a text that was made, or one whose places are not known one by one.
    """
    size = len(text)
    return Embedded(file, text, [start] * size, [end] * size, lambda new: None)


def whole_file(file: FileText) -> Embedded:
    """Return a file's text as its own content, line breaks made one character."""
    text = file.text
    if "\r\n" not in text:
        return Embedded(file, text, range(len(text)), range(1, len(text) + 1), lambda new: new)
    kept = [i for i in range(len(text)) if not text.startswith("\r\n", i)]
    starts = [i - 1 if text.startswith("\r\n", i - 1) and i else i for i in kept]
    content = "".join(text[i] for i in kept)
    ends = [i + 1 for i in kept]
    return Embedded(file, content, starts, ends, lambda new: new.replace("\n", "\r\n"))
