"""Shell text → statements of words, with places and expansions marked but not yet made.

Not a shell: no globs, no arithmetic, no here-document bodies, and control flow is read straight
through. The trap: `$NAME` may only be replaced when its statement is reached, because a script
assigns and uses variables in order; so words keep their parts until `shell_expand.py` makes them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_OPERATORS = re.compile(r"\d*(?:<<<|<<-?|>>|>&|&>>?|>\||<|>)|;;|&&|\|\||[;&|()\n]")
_REDIRECTION = re.compile(r"\d*(?:<<<|<<-?|>>|>&|&>>?|>\||<|>)")
_NAME = re.compile(r"[A-Za-z_]\w*|[@*#?$!0-9-]")
_ANSI_QUOTED = re.compile(r"(?:[^'\\]|\\.)*", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "e": "\x1b", "E": "\x1b"}
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word: text as it stands, or the inside of a `$…` that is still to be made.

    `start` and `end` are its place in the shell text; a plain piece that is as long as its place
    stands there as it is.
    """

    text: str
    start: int
    end: int
    is_expansion: bool = False
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class Word:
    """A word and its place in the shell text. `items` are the words of `NAME=( … )`."""

    parts: tuple[Part, ...]
    start: int
    end: int
    items: "tuple[Word, ...] | None" = None

    @property
    def assigned_name(self) -> str | None:
        """The variable that the word assigns, if it has the form `NAME=…`."""
        if not self.parts or self.parts[0].is_expansion or self.parts[0].is_quoted:
            return None
        found = _ASSIGNMENT.match(self.parts[0].text)
        return found[1] if found else None


def iter_statements(text: str) -> Iterator[list[Word]]:
    """Yield the simple commands of a script in order, redirections and comments left out.

    Line breaks are single characters.
    """
    scanner = _Scanner(text)
    statement: list[Word] = []
    while not scanner.at_end:
        token = scanner.next_token()
        if isinstance(token, Word):
            statement.append(token)
        elif token is not None and statement:
            yield statement
            statement = []
    if statement:
        yield statement


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.here_documents: list[str] = []

    @property
    def at_end(self) -> bool:
        return self.position >= len(self.text)

    def next_token(self) -> "Word | str | None":
        """Return a word, an operator that ends a statement, or None for what means nothing."""
        self._skip_blanks()
        if self.at_end:
            return "\n"
        if operator := _OPERATORS.match(self.text, self.position):
            return self._operator(operator[0])
        return self._word()

    def _take(self, count: int) -> str:
        taken = self.text[self.position : self.position + count]
        self.position += len(taken)
        return taken

    def _take_until(self, end: str) -> str:
        """Take up to `end` and drop it; an `end` that never comes takes all."""
        found = self.text.find(end, self.position)
        taken = self._take((len(self.text) if found < 0 else found) - self.position)
        self._take(len(end))
        return taken

    def _skip_blanks(self) -> None:
        while not self.at_end:
            if self.text.startswith("\\\n", self.position):
                self._take(2)
            elif self.text[self.position] in " \t\r":
                self._take(1)
            elif self.text[self.position] == "#":
                end = self.text.find("\n", self.position)
                self._take((len(self.text) if end < 0 else end) - self.position)
            else:
                return

    def _operator(self, operator: str) -> str | None:
        self._take(len(operator))
        if operator == "\n":
            while self.here_documents:
                self._skip_here_document(self.here_documents.pop(0))
        if not _REDIRECTION.fullmatch(operator):
            return operator
        self._skip_blanks()
        if self.at_end or _OPERATORS.match(self.text, self.position):
            return None
        target = self._word()
        if re.fullmatch(r"\d*<<-?", operator):
            self.here_documents.append("".join(part.text for part in target.parts))
        return None

    def _skip_here_document(self, delimiter: str) -> None:
        while not self.at_end:
            if self._take_until("\n").strip("\t") == delimiter:
                return

    def _word(self) -> Word:
        start = self.position
        parts: list[Part] = []
        while not self.at_end:
            character = self.text[self.position]
            if character in " \t\r\n;&|<>)":
                break
            if character == "(":
                if _ASSIGNMENT.fullmatch("".join(part.text for part in parts)):
                    items = self._array()
                    return Word(tuple(parts), start, self.position, items)
                break
            parts.extend(self._parts(character))
        return Word(tuple(parts), start, self.position)

    def _array(self) -> tuple[Word, ...]:
        self._take(1)
        items: list[Word] = []
        while not self.at_end:
            token = self.next_token()
            if token == ")":
                break
            if isinstance(token, Word):
                items.append(token)
        return tuple(items)

    def _parts(self, character: str) -> list[Part]:
        start = self.position
        if character == "\\":
            taken = self._take(2)
            return [] if taken == "\\\n" else [self._quoted(taken[1:], start)]
        if character == "'":
            self._take(1)
            text = self._take_until("'")
            return [Part(text, start + 1, start + 1 + len(text), is_quoted=True)]
        if character == '"':
            self._take(1)
            return self._double_quoted()
        if self.text.startswith("$'", self.position):
            self._take(2)
            return [self._quoted(self._ansi_quoted(), start)]
        if self.text.startswith('$"', self.position):
            self._take(2)
            return self._double_quoted()
        if character in "$`":
            return [self._expansion(is_quoted=False)]
        plain = re.compile(r"[^\s;&|<>()\\'\"$`]+").match(self.text, self.position)
        return [Part(self._take(len(plain[0]) if plain else 1), start, self.position)]

    def _quoted(self, text: str, start: int) -> Part:
        return Part(text, start, self.position, is_quoted=True)

    def _double_quoted(self) -> list[Part]:
        parts = [self._quoted("", self.position)]
        while not self.at_end:
            start, character = self.position, self.text[self.position]
            if character == '"':
                self._take(1)
                break
            if character == "\\" and self.text[self.position + 1 : self.position + 2] in '$`"\\\n':
                escaped = self._take(2)[1:]
                parts.append(self._quoted("" if escaped == "\n" else escaped, start))
            elif character in "$`":
                parts.append(self._expansion(is_quoted=True))
            else:
                parts.append(self._quoted(self._take(1), start))
        return parts

    def _ansi_quoted(self) -> str:
        """Take the rest of a `$'…'`; of its escapes those that launches use."""
        found = _ANSI_QUOTED.match(self.text, self.position)
        inner = self._take(len(found[0]) if found else 0)
        self._take(1)
        return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), inner)

    def _expansion(self, *, is_quoted: bool) -> Part:
        start = self.position
        if self._take(1) == "`":
            inner = f"({self._take_until('`')})"
        elif self.text.startswith("{", self.position):
            self._take(1)
            inner = self._take_balanced("{", "}")
        elif self.text.startswith("(", self.position):
            self._take(1)
            inner = f"({self._take_balanced('(', ')')})"
        elif name := _NAME.match(self.text, self.position):
            inner = self._take(len(name[0]))
        else:
            return Part("$", start, self.position, is_quoted=is_quoted)
        return Part(inner, start, self.position, True, is_quoted)

    def _take_balanced(self, opening: str, closing: str) -> str:
        start, depth = self.position, 1
        while not self.at_end:
            character = self._take(1)
            depth += (character == opening) - (character == closing)
            if depth == 0:
                return self.text[start : self.position - 1]
        return self.text[start:]
