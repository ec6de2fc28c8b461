"""Where a word of a launch stands, and how another word is written in its place.

A `WordOrigin` is a word of a shell text (or of a variable in it), a `NodeOrigin` a scalar of a
YAML or JSON file. Both tell what a change would replace; neither changes anything.
"""

import json
import re
import shlex
from dataclasses import dataclass

import yaml

from inkling_cli.checks.launch.text.source import Edit, Embedded, FileText

_SAFE = re.compile(r"[\w@%+=:,./ -]*")
_PLAIN_YAML = re.compile(r"[A-Za-z0-9_./-][\w@%+=,./-]*(?: [\w@%+=./-]+)*")


@dataclass(frozen=True, slots=True)
class WordOrigin:
    """A word of a shell text.

    Attributes:
        embedded: the shell text.
        start: where the word begins in it.
        end: and where it ends.
        prefix: what stands before the value within the word: `NAME=`.
        is_inner: whether it is a piece of a longer word, as in `ARGS="--a 1 --b 2"`.
    """

    embedded: Embedded
    start: int
    end: int
    prefix: str = ""
    is_inner: bool = False

    @property
    def span(self) -> tuple[int, int]:
        """Its place in the file."""
        return self.embedded.span(self.start, self.end)

    def replace(self, value: str) -> Edit | None:
        """Return the edit that writes another value here; None if it cannot stand here."""
        word = self.prefix + value
        if self.is_inner:
            text = word if _SAFE.fullmatch(word) else None
        elif '"' in self.embedded.text[self.start : self.end][:1] and _SAFE.fullmatch(word):
            text = f'"{word}"'
        else:
            text = shlex.quote(word)
        return None if text is None else self.embedded.edit(self.start, self.end, text)


@dataclass(frozen=True, slots=True, eq=False)
class NodeOrigin:
    """A scalar of a YAML or JSON file, or an item of a list in one.

    Attributes:
        file: the file.
        node: the scalar.
        prefix: what stands before the value within the scalar: `NAME=`.
        parent: the list that it is an item of.
    """

    file: FileText
    node: yaml.ScalarNode
    prefix: str = ""
    parent: yaml.SequenceNode | None = None

    @property
    def span(self) -> tuple[int, int]:
        """Its place in the file."""
        return self.node.start_mark.index, self.node.end_mark.index

    def replace(self, value: str) -> Edit | None:
        """Return the edit that writes another text here, in the same quotes."""
        if self.node.style in ("|", ">"):
            return None
        return Edit(*self.span, format_scalar(self.prefix + value, self.node.style))


Origin = WordOrigin | NodeOrigin


def format_scalar(value: str, style: str | None, *, is_text: bool = True) -> str:
    """Return a text as a YAML scalar in a style: `None` plain where that says the same, `'`, `"`.

    Args:
        value: the text.
        style: of the scalar that it replaces or stands beside.
        is_text: whether it must be read back as text, not as a number or a switch.
    """
    if style == "'":
        return "'" + value.replace("'", "''") + "'"
    if style is None and _PLAIN_YAML.fullmatch(value) and (not is_text or _reads_as_text(value)):
        return value
    return json.dumps(value, ensure_ascii=False)


def _reads_as_text(value: str) -> bool:
    loaded = yaml.safe_load(value)
    return isinstance(loaded, str)
