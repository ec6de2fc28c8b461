"""Shell text → statements of words, with places and expansions marked but not yet made.

Not a shell: no globs, no arithmetic, no here-document bodies, and control flow is read straight
through. The trap: `$NAME` may only be replaced when its statement is reached, because a script
assigns and uses variables in order; so words keep their parts until `shell_expand.py` makes them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

_REDIRECTION = re.compile(r"\d*(?:<<<|<<-?|<&|<>|>>|>&|&>>?|>\||<|>)")
_OPERATORS = re.compile(rf"{_REDIRECTION.pattern}|;;|&&|\|\||[;&|()\n]")
_PROCESS = ("<(", ">(")
_NAME = re.compile(r"[A-Za-z_]\w*|[@*#?$!0-9-]")
_ANSI_QUOTED = re.compile(r"(?:[^'\\]|\\.)*", re.DOTALL)
_ANSI_ESCAPE = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|([0-7]{1,3})|(.))", re.DOTALL
)
_ESCAPES = {"a": "\a", "b": "\b", "n": "\n", "t": "\t", "r": "\r", "e": "\x1b", "E": "\x1b"}
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=")
_NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word: text as it stands, or the inside of a `$…` that is still to be made.

    `start` and `end` are its place in the shell text, below zero where it has none; a plain piece
    that is as long as its place stands there as it is.
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


@dataclass(frozen=True, slots=True)
class Statement:
    """A simple command, which may have no words, and the operator that ends it."""

    words: list[Word]
    operator: str


def iter_statements(text: str) -> Iterator[Statement]:
    """Yield the simple commands of a script in order, redirections and comments left out.

    Line breaks are single characters.
    """
    scanner = _Scanner(text)
    words: list[Word] = []
    while not scanner.at_end:
        token = scanner.next_token()
        if isinstance(token, Word):
            words.append(token)
        elif token is not None:
            yield Statement(words, token)
            words = []
    if words:
        yield Statement(words, "\n")


def iter_words(text: str) -> Iterator[Word]:
    """Yield the words of a text, whatever stands between them."""
    for statement in iter_statements(text):
        yield from statement.words


def read_default(text: str, *, is_quoted: bool) -> tuple[Part, ...]:
    """Return the parts of the word in `${NAME:-word}`; they stand at no place of their own."""
    scanner = _Scanner(text)
    parts: list[Part] = []
    while not scanner.at_end:
        parts += scanner.default_parts(is_quoted)
    return tuple(replace(part, start=_NOWHERE, end=_NOWHERE) for part in parts)


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.here_documents: list[tuple[str, bool]] = []

    @property
    def at_end(self) -> bool:
        return self.position >= len(self.text)

    def next_token(self) -> "Word | str | None":
        """Return a word, an operator that ends a statement, or None for what means nothing."""
        self._skip_blanks()
        if self.at_end:
            return "\n"
        if self.text.startswith(_PROCESS, self.position):
            return self._process()
        if self.text.startswith("((", self.position) and (word := self._arithmetic()):
            return word
        if operator := _OPERATORS.match(self.text, self.position):
            return self._operator(operator[0])
        return self._word()

    def _process(self) -> Word:
        """Take a `<(command)`."""
        start = self.position
        self._take(1)
        part = self._command_part(start)
        return Word((part,), start, self.position)

    def _arithmetic(self) -> Word | None:
        """Take a `((…))` as one word; nothing where it is two subshells."""
        start = self.position
        self._take(1)
        inner = self._take_balanced("(", ")", is_quoted=True)
        text = self.text[start : self.position]
        if not (inner.endswith(")") and text.endswith("))")):
            self.position = start
            return None
        return Word((Part(text, start, self.position),), start, self.position)

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
                self._skip_here_document(*self.here_documents.pop(0))
        if not _REDIRECTION.fullmatch(operator):
            return operator
        self._skip_blanks()
        if self.text.startswith(_PROCESS, self.position):
            self._process()
            return None
        if self.at_end or _OPERATORS.match(self.text, self.position):
            return None
        target = self._word()
        if re.fullmatch(r"\d*<<-?", operator):
            delimiter = "".join(part.text for part in target.parts)
            self.here_documents.append((delimiter, operator.endswith("-")))
        return None

    def _skip_here_document(self, delimiter: str, is_indented: bool) -> None:
        while not self.at_end:
            line = self._take_until("\n")
            if (line.lstrip("\t") if is_indented else line) == delimiter:
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

    def default_parts(self, is_quoted: bool) -> list[Part]:
        """Take the next parts of a default, in which blanks and operators mean nothing."""
        start, character = self.position, self.text[self.position]
        if is_quoted:
            return [] if character == '"' and self._take(1) else [self._in_double_quotes()]
        if character in " \t\n;&|<>()":
            return [Part(self._take(1), start, self.position)]
        return self._parts(character)

    def _double_quoted(self) -> list[Part]:
        parts = [self._quoted("", self.position)]
        while not self.at_end:
            if self.text[self.position] == '"':
                self._take(1)
                break
            parts.append(self._in_double_quotes())
        return parts

    def _in_double_quotes(self) -> Part:
        start, character = self.position, self.text[self.position]
        if character == "\\" and self.text[self.position + 1 : self.position + 2] in '$`"\\\n':
            escaped = self._take(2)[1:]
            return self._quoted("" if escaped == "\n" else escaped, start)
        if character in "$`":
            return self._expansion(is_quoted=True)
        return self._quoted(self._take(1), start)

    def _ansi_quoted(self) -> str:
        """Take the rest of a `$'…'`."""
        found = _ANSI_QUOTED.match(self.text, self.position)
        inner = self._take(len(found[0]) if found else 0)
        self._take(1)
        return _ANSI_ESCAPE.sub(_unescaped, inner)

    def _expansion(self, *, is_quoted: bool) -> Part:
        start = self.position
        if self._take(1) == "`":
            inner = f"({self._take_until('`')})"
        elif self.text.startswith("{", self.position):
            self._take(1)
            inner = self._take_balanced("{", "}", is_quoted=is_quoted)
        elif self.text.startswith("(", self.position):
            return self._command_part(start, is_quoted=is_quoted)
        elif name := _NAME.match(self.text, self.position):
            inner = self._take(len(name[0]))
        else:
            return Part("$", start, self.position, is_quoted=is_quoted)
        return Part(inner, start, self.position, True, is_quoted)

    def _command_part(self, start: int, *, is_quoted: bool = False) -> Part:
        self._take(1)
        inner = f"({self._take_balanced('(', ')', is_quoted=False)})"
        return Part(inner, start, self.position, True, is_quoted)

    def _take_balanced(self, opening: str, closing: str, *, is_quoted: bool) -> str:
        """Take up to the bracket that closes, quotes inside respected, and drop it."""
        start, depth = self.position, 1
        while not self.at_end:
            character = self._take(1)
            if character == "\\":
                self._take(1)
            elif character == '"':
                self._double_quoted()
            elif character == "'" and not is_quoted:
                self._take_until("'")
            depth += (character == opening) - (character == closing)
            if depth == 0:
                return self.text[start : self.position - 1]
        return self.text[start:]


def _unescaped(escape: re.Match[str]) -> str:
    byte, code, octal, other = escape.groups()
    if other is not None:
        return _ESCAPES.get(other, other if other in "\\'\"?" else escape[0])
    return chr(int(octal, 8) & 0xFF) if octal else chr(int(byte or code, 16))
