r"""`rank_pattern` and `alpha_pattern`: values by patterns of module names.

PEFT takes the first key in file order for which `re.match(rf"(.*\.)?({key})$", name)` finds
something. Keys come from strangers, by the ten thousand or as expressions that `re` never
finishes: most are plain names and are looked up, the others are matched by an automaton. The trap
is the dot: in a key that is otherwise a plain name it still stands for any character.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from inkling_runtime.adapter.automaton import Automaton
from inkling_runtime.adapter.regex_syntax import PatternError

Value = TypeVar("Value")


class PatternTable(Mapping[str, Value], Generic[Value]):
    """A mapping as it stands in the config, which also finds the key of a module.

    Raises:
        PatternError: a key is not a regular expression.
    """

    def __init__(self, values: Mapping[str, Value] | None = None) -> None:
        self._values = dict(values or {})
        self._order = {key: index for index, key in enumerate(self._values)}
        self._names = _PlainNames(filter(is_plain, self._values))
        expressions = [key for key in self._values if not is_plain(key)]
        self._automaton = Automaton(expressions) if expressions else None

    def __getitem__(self, key: str) -> Value:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def find_key(self, module: str) -> str | None:
        """Return the first key that PEFT would apply to a module name, or None.

        The name is matched without `base_model.model.`.

        Raises:
            PatternError: finding it takes more work than any real adapter needs.
        """
        if not self._values:
            return None
        name = module.removeprefix("base_model.model.")
        found = self._names.find(name)
        if self._automaton is not None and (key := self._automaton.first(name)) is not None:
            found.append(key)
        return min(found, key=self._order.__getitem__, default=None)


def is_plain(key: str) -> bool:
    """Return whether a key stands for one name, but for its dots."""
    return _PLAIN.fullmatch(key) is not None


_PLAIN = re.compile(r"(?:[^\\^$*+?{}\[\]|()]|\\[^0-9A-Za-z\s])*+")

MAX_LOOK_UPS = 20_000_000


class _PlainNames:
    """Plain keys, by their text and by where in it a dot stands for any character."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._by_text: dict[str, str] = {}
        self._by_dots: dict[int, dict[tuple[int, ...], dict[str, str]]] = {}
        self._work = 0
        for key in keys:
            text, dots = _unescaped(key)
            self._by_text.setdefault(text, key)
            same_length = self._by_dots.setdefault(len(text), {})
            same_length.setdefault(dots, {}).setdefault(text, key)

    def find(self, name: str) -> list[str]:
        """Return the first key of each kind that matches a name."""
        if name.endswith("\n"):
            return self._find(name) + self._find(name[:-1])
        return self._find(name)

    def _find(self, name: str) -> list[str]:
        found = []
        for start in _tail_starts(name):
            tail = name[start:]
            if tail in self._by_text:
                found.append(self._by_text[tail])
            for dots, keys in self._by_dots.get(len(tail), {}).items():
                self._work += 1
                if any(tail[at] != "." for at in dots):
                    found += _look_up(keys, tail, dots)
        if self._work > MAX_LOOK_UPS:
            first = next(iter(self._by_text.values()))
            raise PatternError(first, "it and the keys behind it take too long to match")
        return found


def _unescaped(key: str) -> tuple[str, tuple[int, ...]]:
    """Return the name that a plain key stands for, and where it stands for any character."""
    text: list[str] = []
    dots: list[int] = []
    characters = iter(key)
    for character in characters:
        if character == ".":
            dots.append(len(text))
        text.append(next(characters) if character == "\\" else character)
    return "".join(text), tuple(dots)


def _tail_starts(name: str) -> list[int]:
    """Return where a key may begin: at the start, or behind a dot that no newline precedes."""
    line_end = name.find("\n")
    end = len(name) if line_end < 0 else line_end
    return [0, *(at + 1 for at in range(end) if name[at] == ".")]


def _look_up(keys: Mapping[str, str], tail: str, dots: tuple[int, ...]) -> list[str]:
    characters = list(tail)
    for at in dots:
        if characters[at] == "\n":
            return []
        characters[at] = "."
    text = "".join(characters)
    return [keys[text]] if text in keys else []
