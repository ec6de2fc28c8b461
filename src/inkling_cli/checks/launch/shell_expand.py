"""Makes the expansions in shell words: `$NAME`, `${NAME:-default}`, `"${ARRAY[@]}"`.

Not more than launch scripts use: no globs, no substrings, no command is run. What has no value
stays as written (`$NAME`) and is collected, so that a rule can say what was not checked.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from inkling_cli.checks.launch.shell_words import Part, Word, iter_statements

_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*|[@*#?$!0-9-]")
_DEFAULTED = re.compile(r"([A-Za-z_]\w*)(:?[-=?+])(.*)", re.DOTALL)
_ARRAY = re.compile(r"([A-Za-z_]\w*)\[[@*]\]")

Value = str | tuple[str, ...]
"""What a variable holds: text, or the words of an array."""


@dataclass
class Expander:
    """Makes expansions against variables.

    `unknown` collects what has no value here, `used` the names of variables that were looked at.
    """

    variables: Mapping[str, Value]
    unknown: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def join(self, word: Word) -> str:
        """Return a word as one string, as on the right of an assignment."""
        return "".join(self._flat(part) for part in word.parts)

    def split(self, word: Word) -> list[str]:
        """Return the words that a word becomes; an unquoted empty expansion becomes none."""
        fields: list[str] = [""]
        is_kept = is_empty_array = False
        for part in word.parts:
            pieces = self._pieces(part)
            is_kept = is_kept or not part.is_expansion or part.is_quoted
            is_empty_array = is_empty_array or (not pieces and part.is_quoted)
            if pieces:
                fields[-1] += pieces[0]
                fields.extend(pieces[1:])
        return fields if any(fields) or (is_kept and not is_empty_array) else []

    def _pieces(self, part: Part) -> list[str]:
        if not part.is_expansion:
            return [part.text]
        value = self._value(part.text)
        if isinstance(value, tuple):
            return list(value)
        return [value] if part.is_quoted else value.split()

    def _flat(self, part: Part) -> str:
        return " ".join(self._pieces(Part(part.text, part.is_expansion, True)))

    def _value(self, inner: str) -> Value:
        self.used.update(re.findall(r"[A-Za-z_]\w*", inner))
        if array := _ARRAY.fullmatch(inner):
            value = self.variables.get(array[1])
            return self._missing(inner) if value is None else value
        if found := _DEFAULTED.fullmatch(inner):
            return self._defaulted(inner, *found.groups())
        value = self.variables.get(inner)
        if isinstance(value, tuple):
            return value[0] if value else ""
        return self._missing(inner) if value is None else value

    def _defaulted(self, inner: str, name: str, operator: str, text: str) -> Value:
        value = self.variables.get(name)
        is_set = value is not None and (value != "" or not operator.startswith(":"))
        if operator.endswith("+"):
            return self._text(text) if is_set else ""
        if is_set and value is not None:
            return value
        return self._missing(inner) if operator.endswith("?") else self._text(text)

    def _text(self, text: str) -> str:
        words = (word for statement in iter_statements(f'"{text}"') for word in statement)
        return " ".join(self.join(word) for word in words)

    def _missing(self, inner: str) -> str:
        self.unknown.append(inner)
        return (
            f"${inner}"
            if _PLAIN_NAME.fullmatch(inner) or inner.startswith("(")
            else f"${{{inner}}}"
        )
