"""Makes the expansions in shell words: `$NAME`, `${NAME:-default}`, `"${ARRAY[@]}"`.

Not more than launch scripts use: no globs, no substrings, no command is run. What has no value
stays as written (`$NAME`) and is marked, so that a rule can say what was not checked. Words
keep their origin: a word that an expansion became as a whole stands where the expansion stands,
one of several that a variable holds stands where the variable is assigned.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from inkling_cli.checks.launch.launch import Argument
from inkling_cli.checks.launch.parse.shell_words import Part, Word, read_default
from inkling_cli.checks.launch.parse.traced import (
    Traced,
    join,
    trace_part,
    unknown_text,
    untraced,
)
from inkling_cli.checks.launch.text.origins import WordOrigin
from inkling_cli.checks.launch.text.source import Embedded

_DEFAULTED = re.compile(r"([A-Za-z_]\w*)(:?)([-=?+])(.*)", re.DOTALL)
_ARRAY = re.compile(r"([A-Za-z_]\w*)\[([@*])\]")
_ARRAY_OR_NOTHING = re.compile(r"(([A-Za-z_]\w*)\[@\])(:?\+\"\$\{\2\[@\]\}\"|:?-)")

Value = Traced | tuple[Argument, ...]
"""What a variable holds: text, or the words of an array."""


@dataclass
class _Field:
    """A word in the making; it is one even if empty where something in it is quoted."""

    pieces: list[Traced] = field(default_factory=list)
    is_kept: bool = False

    def add(self, piece: Traced) -> None:
        self.pieces.append(piece)
        self.is_kept = True


@dataclass
class Expander:
    """Makes expansions in a shell text against variables.

    `used` collects the names of variables that were looked at, `assigned` what `${NAME:=value}`
    assigns.
    """

    embedded: Embedded
    variables: Mapping[str, Value]
    used: set[str] = field(default_factory=set)
    assigned: dict[str, Value] = field(default_factory=dict)

    def join(self, word: Word) -> Traced:
        """Return a word as one text, as on the right of an assignment."""
        return self._join(self._unfold(word.parts))

    def _join(self, parts: list[Part]) -> Traced:
        return join(_as_text(self._value(part)) for part in parts)

    def split(self, word: Word) -> list[Argument]:
        """Return the words that a word becomes; an unquoted empty expansion becomes none."""
        parts = self._unfold(word.parts)
        if (items := self._whole_array(parts)) is not None:
            return list(items)
        fields = [_Field()]
        for part, following in zip(parts, [*parts[1:], None], strict=True):
            opens_quotes = following is not None and following.is_expansion and following.is_quoted
            if part.is_expansion:
                self._put(part, fields)
            elif part.text or (part.is_quoted and not opens_quotes):
                fields[-1].add(trace_part(part))
        texts = [join(field.pieces) for field in fields if field.is_kept]
        if len(texts) == 1:
            return [self.argument(texts[0], word)]
        return [self._inner(text, word) for text in texts]

    def argument(self, text: Traced, word: Word) -> Argument:
        """Return a text that stands where a whole word of the shell text stands."""
        origin = WordOrigin(self.embedded, word.start, word.end)
        return Argument(text.text, self.embedded.line(word.start), origin, text.unknown)

    def _inner(self, text: Traced, word: Word) -> Argument:
        """Return one of the several words that a word became."""
        line = self.embedded.line(word.start)
        if text.span is None:
            return Argument(text.text, line, unknown=text.unknown)
        start, end = text.span
        origin = WordOrigin(self.embedded, start, end, is_inner=True)
        return Argument(text.text, line, origin, text.unknown)

    def _put(self, part: Part, fields: list[_Field]) -> None:
        """Add an expansion to the last field, and further fields where it is split."""
        value = self._value(part)
        if isinstance(value, Traced) and part.is_quoted:
            fields[-1].add(value)
        elif isinstance(value, Traced):
            _spread(value, fields)
        elif part.is_quoted and "[*]" in part.text:
            fields[-1].add(_as_text(value))
        else:
            for number, item in enumerate(value):
                fields += [_Field()] if number else []
                if part.is_quoted:
                    fields[-1].add(_trace_item(item))
                else:
                    _spread(_trace_item(item), fields)

    def _whole_array(self, parts: list[Part]) -> tuple[Argument, ...] | None:
        """Return the items of the array that a word is nothing but; None if one is split."""
        parts = [part for part in parts if part.is_expansion or part.text]
        if len(parts) != 1 or not parts[0].is_expansion or not _ARRAY.fullmatch(parts[0].text):
            return None
        value = self._value(parts[0])
        if isinstance(value, Traced) or (parts[0].is_quoted and "[*]" in parts[0].text):
            return None
        if not parts[0].is_quoted and any(len(item.text.split()) != 1 for item in value):
            return None
        return value

    def _value(self, part: Part) -> Value:
        """Return what an expansion stands for; an array as its words only where all are asked."""
        inner = part.text
        if not part.is_expansion:
            return trace_part(part)
        self.used.update(re.findall(r"[A-Za-z_]\w*", inner))
        array = _ARRAY.fullmatch(inner)
        value = self._get(array[1] if array else inner)
        if value is None:
            return unknown_text(inner)
        if isinstance(value, tuple) and not array:
            return _trace_item(value[0]) if value else untraced("")
        return value

    def _get(self, name: str) -> Value | None:
        return self.assigned.get(name, self.variables.get(name))

    def _unfold(self, parts: tuple[Part, ...]) -> list[Part]:
        """Return the parts with those of a default in the place of a `${NAME:-default}`."""
        return [new for part in parts for new in self._unfolded(part)]

    def _unfolded(self, part: Part) -> Iterator[Part]:
        if part.is_expansion and (found := _ARRAY_OR_NOTHING.fullmatch(part.text)):
            yield self._array_or_nothing(part, *found.groups())
        elif part.is_expansion and (found := _DEFAULTED.fullmatch(part.text)):
            yield from self._defaulted(part, *found.groups())
        else:
            yield part

    def _array_or_nothing(self, part: Part, inner: str, name: str, operator: str) -> Part:
        """Return the part of `${A[@]+"${A[@]}"}`, which is `"${A[@]}"`, and of `${A[@]:-}`."""
        if operator.endswith("-"):
            is_empty = self._get(name) == ()
            return replace(part, text="", is_expansion=False) if is_empty else _named(part, inner)
        return replace(_named(part, inner), is_quoted=True)

    def _defaulted(
        self, part: Part, name: str, colon: str, operator: str, text: str
    ) -> Iterator[Part]:
        self.used.add(name)
        value = self._get(name)
        known = _as_text(value) if value is not None else untraced("")
        if known.unknown and known.text.startswith("$"):
            yield part
            return
        is_set = value is not None and value != () and bool(known.text or not colon)
        if operator == "?" and not is_set:
            yield part
        elif operator == "+" or not is_set:
            yield replace(part, text="", is_expansion=False, start=-1, end=-1)
            if is_set or operator != "+":
                default = self._unfold(read_default(text, is_quoted=part.is_quoted))
                if operator == "=":
                    self.assigned[name] = self._join(default)
                yield from default
        else:
            yield _named(part, name)


def _named(part: Part, inner: str) -> Part:
    return replace(part, text=inner)


def _trace_item(item: Argument) -> Traced:
    return replace(untraced(item.text), unknown=item.unknown)


def _as_text(value: Value) -> Traced:
    if isinstance(value, Traced):
        return value
    texts = [_trace_item(item) for item in value]
    return join(piece for item in texts for piece in (untraced(" "), item)).after(1)


def _spread(value: Traced, fields: list[_Field]) -> None:
    """Add a value that is not quoted: each blank in it ends a field."""
    blanks = " \t\n"
    if value.text[:1] and value.text[0] in blanks:
        fields.append(_Field())
    for number, piece in enumerate(value.split()):
        fields += [_Field()] if number else []
        fields[-1].add(piece)
    if value.text[-1:] and value.text[-1] in blanks:
        fields.append(_Field())
