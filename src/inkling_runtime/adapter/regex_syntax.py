r"""Regular expressions over module names, as trees.

Not all of `re`: only what describes a regular language, so that an automaton can match it in
time that grows with the name and not with the ways to read it. Looking around, references to
groups, word boundaries and flags are refused. What a class such as `[a-z]` or `\d` contains is
still asked of `re` itself.
"""

import re
import warnings
from dataclasses import dataclass


class PatternError(ValueError):
    """A key that is not an expression, or not one that is matched here."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Atom:
    """One character: `text` is a literal, `.`, an escape or a class in the syntax of `re`."""

    text: str


@dataclass(frozen=True, slots=True)
class Edge:
    """The start or the end of the name."""

    is_start: bool


@dataclass(frozen=True, slots=True)
class Chain:
    """One after another."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several."""

    options: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Again and again; `most` None: without an end."""

    part: "Node"
    least: int
    most: int | None


Node = Atom | Edge | Chain | Choice | Repeat

MAX_KEY_LENGTH = 1000
_MAX_GROUP_DEPTH = 20
_MAX_REPEATS = 1000


def parse_pattern(key: str) -> Node:
    """Return the tree of an expression.

    Raises:
        PatternError: `re` refuses it, or it is more than a regular expression in the strict sense.
    """
    if len(key) > MAX_KEY_LENGTH:
        raise PatternError(key, f"it has {len(key)} characters, expected at most {MAX_KEY_LENGTH}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(key)
    except (re.error, RecursionError, OverflowError, Warning) as error:
        raise PatternError(key, str(error)) from error
    return _Reader(key).choice(0)


_QUANTIFIER = re.compile(r"([*+?]|\{(\d*)(,?)(\d*)\})([?+]?)")
_GROUP = re.compile(r"\((?:\?:|\?P<\w+>|(?!\?))")
_ATOM = re.compile(
    r"""\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^}]*\}|0[0-7]{0,2}|[1-7][0-7]{2}|.)
        | \[\^?\]?(?:[^\]\\]|\\.)*\]
        | .""",
    re.VERBOSE | re.DOTALL,
)
_START, _END = ("^", r"\A"), "$"
_NOT_REGULAR = re.compile(r"\\(?:[1-9][0-9]?|[bBZ])")


class _Reader:
    """Reads an expression that `re` accepts, from left to right."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.at = 0

    def choice(self, depth: int) -> Node:
        if depth > _MAX_GROUP_DEPTH:
            raise PatternError(self.key, f"it has groups more than {_MAX_GROUP_DEPTH} deep")
        options = [self.chain(depth)]
        while self.key.startswith("|", self.at):
            self.at += 1
            options.append(self.chain(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def chain(self, depth: int) -> Node:
        parts = []
        while self.at < len(self.key) and self.key[self.at] not in "|)":
            parts.append(self.quantified(self.part(depth)))
        return Chain(tuple(parts))

    def part(self, depth: int) -> Node:
        if self.key[self.at] != "(":
            return self.atom()
        group = _GROUP.match(self.key, self.at)
        if group is None:
            raise self.refusal(self.key[self.at : self.at + 3])
        self.at = group.end()
        inner = self.choice(depth + 1)
        self.at += 1
        return inner

    def atom(self) -> Node:
        match = _ATOM.match(self.key, self.at)
        if match is None:
            raise self.refusal(self.key[self.at])
        self.at, text = match.end(), match[0]
        if text in _START or text == _END:
            return Edge(is_start=text != _END)
        if _NOT_REGULAR.fullmatch(text):
            raise self.refusal(text)
        return Atom(text)

    def quantified(self, part: Node) -> Node:
        match = _QUANTIFIER.match(self.key, self.at)
        if match is None or match[1] == "{}":
            return part
        if match[5] == "+":
            raise self.refusal(match[0])
        self.at = match.end()
        least, most = _bounds(match)
        if max(least, most or 0) > _MAX_REPEATS:
            reason = f"it repeats with `{match[0]}`, expected at most {_MAX_REPEATS} times"
            raise PatternError(self.key, reason)
        return Repeat(part, least, most)

    def refusal(self, what: str) -> PatternError:
        return PatternError(
            self.key,
            f"it uses `{what}`, expected no look-around, references to groups, word boundaries, "
            "possessive repeats or flags",
        )


def _bounds(match: re.Match[str]) -> tuple[int, int | None]:
    if match[1][0] != "{":
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[match[1]]
    least = int(match[2] or 0)
    if not match[3]:
        return least, least
    return least, int(match[4]) if match[4] else None
