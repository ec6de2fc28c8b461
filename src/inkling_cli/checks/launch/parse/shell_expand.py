"""Makes the expansions in shell words: `$NAME`, `${NAME:-default}`, `"${ARRAY[@]}"`.

Not more than launch scripts use: no globs, no substrings, no command is run. What has no value
stays as written (`$NAME`) and is collected, so that a rule can say what was not checked. Words
keep their origin: a word that an expansion became as a whole stands where the expansion stands,
one of several that a variable holds stands where the variable is assigned.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from inkling_cli.checks.launch.launch import Argument
from inkling_cli.checks.launch.parse.shell_words import Part, Word, iter_statements
from inkling_cli.checks.launch.parse.traced import EMPTY, Traced, join, trace_part, untraced
from inkling_cli.checks.launch.text.origins import WordOrigin
from inkling_cli.checks.launch.text.source import Embedded

_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*|[@*#?$!0-9-]")
_DEFAULTED = re.compile(r"([A-Za-z_]\w*)(:?[-=?+])(.*)", re.DOTALL)
_ARRAY = re.compile(r"([A-Za-z_]\w*)\[[@*]\]")

Value = Traced | tuple[Argument, ...]
"""What a variable holds: text, or the words of an array."""


@dataclass
class Expander:
    """Makes expansions in a shell text against variables.

    `unknown` collects what has no value here, `used` the names of variables that were looked at.
    """

    embedded: Embedded
    variables: Mapping[str, Value]
    unknown: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def join(self, word: Word) -> Traced:
        """Return a word as one text, as on the right of an assignment."""
        return join(self._flat(part) for part in word.parts)

    def split(self, word: Word) -> list[Argument]:
        """Return the words that a word becomes; an unquoted empty expansion becomes none."""
        if (items := self._whole_array(word)) is not None:
            return list(items)
        fields: list[list[Traced]] = [[]]
        is_kept = False
        for part in word.parts:
            pieces = self._pieces(part)
            is_kept = is_kept or not part.is_expansion or part.is_quoted
            if pieces:
                fields[-1].append(pieces[0])
                fields.extend([piece] for piece in pieces[1:])
        texts = [join(pieces) for pieces in fields]
        if len(texts) == 1:
            is_kept = is_kept or bool(texts[0].text)
            return [self.argument(texts[0].text, word)] if is_kept else []
        return [self._inner(text, word) for text in texts]

    def argument(self, text: str, word: Word) -> Argument:
        """Return a text that stands where a whole word of the shell text stands."""
        origin = WordOrigin(self.embedded, word.start, word.end)
        return Argument(text, self.embedded.line(word.start), origin)

    def _inner(self, text: Traced, word: Word) -> Argument:
        """Return one of the several words that a word became."""
        line = self.embedded.line(word.start)
        if text.span is None:
            return Argument(text.text, line)
        start, end = text.span
        return Argument(text.text, line, WordOrigin(self.embedded, start, end, is_inner=True))

    def _whole_array(self, word: Word) -> tuple[Argument, ...] | None:
        """Return the items of the array that a word is nothing but."""
        parts = [part for part in word.parts if part.is_expansion or part.text]
        if len(parts) != 1 or not parts[0].is_expansion:
            return None
        value = self._value(parts[0].text) if _ARRAY.fullmatch(parts[0].text) else None
        return value if isinstance(value, tuple) else None

    def _pieces(self, part: Part) -> list[Traced]:
        if not part.is_expansion:
            return [trace_part(part)]
        value = self._value(part.text)
        if isinstance(value, tuple):
            return [untraced(item.text) for item in value]
        return [value] if part.is_quoted else value.split()

    def _flat(self, part: Part) -> Traced:
        if not part.is_expansion:
            return trace_part(part)
        value = self._value(part.text)
        if isinstance(value, tuple):
            return untraced(" ".join(item.text for item in value))
        return value

    def _value(self, inner: str) -> Value:
        self.used.update(re.findall(r"[A-Za-z_]\w*", inner))
        if array := _ARRAY.fullmatch(inner):
            value = self.variables.get(array[1])
            return self._missing(inner) if value is None else value
        if found := _DEFAULTED.fullmatch(inner):
            return self._defaulted(inner, *found.groups())
        value = self.variables.get(inner)
        if isinstance(value, tuple):
            return untraced(value[0].text) if value else EMPTY
        return self._missing(inner) if value is None else value

    def _defaulted(self, inner: str, name: str, operator: str, text: str) -> Value:
        value = self.variables.get(name)
        is_empty = isinstance(value, Traced) and not value.text
        is_set = value is not None and not (is_empty and operator.startswith(":"))
        if operator.endswith("+"):
            return self._text(text) if is_set else EMPTY
        if is_set and value is not None:
            return value
        return self._missing(inner) if operator.endswith("?") else self._text(text)

    def _text(self, text: str) -> Traced:
        """Return a default, expanded; it stands at no place of its own."""
        words = [word for statement in iter_statements(f'"{text}"') for word in statement]
        return untraced(" ".join(self.join(word).text for word in words))

    def _missing(self, inner: str) -> Traced:
        self.unknown.append(inner)
        plain = _PLAIN_NAME.fullmatch(inner) or inner.startswith("(")
        return untraced(f"${inner}" if plain else f"${{{inner}}}")
