"""Several expressions matched at once, in one pass over a name.

Not `re`: that tries the ways to read a name one after another, and `(a+)+$` has more ways than
anyone can wait for. Here the set of all states that the name so far can lead to is carried along;
sets that were met before are remembered, so that a name costs a look-up for each character.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

from inkling_runtime.adapter.regex_syntax import (
    Atom,
    Chain,
    Choice,
    Edge,
    Node,
    PatternError,
    Repeat,
    parse_pattern,
)

MAX_STATES = 100_000
"""The most states of all expressions together, about one for each of their characters."""

MAX_STEPS = 20_000_000
"""The most states that are visited anew, for all names together: some seconds of work."""

_MAX_REMEMBERED = 1_000_000


@dataclass(slots=True, eq=False)
class _Place:
    """Where a beginning of a name leads, and what was found of how it goes on."""

    states: frozenset[int]
    is_start: bool = False
    exits: "_Exits | None" = None
    ended: set[int] | None = None
    """Which keys match a name that ends here."""
    known: "dict[str, _Place]" = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Exits:
    """The ways on from a place: over one character, over one of a class, over any but a newline."""

    literals: Mapping[str, set[int]]
    classes: Sequence[tuple[re.Pattern[str], int]]
    any_character: set[int]

    def follow(self, character: str) -> frozenset[int]:
        """Return the states behind a character."""
        found = self.literals.get(character, set()).copy()
        if character != "\n":
            found |= self.any_character
        found.update(state for members, state in self.classes if members.fullmatch(character))
        return frozenset(found)


class Automaton:
    r"""Finds the first key for which `re.match(rf"(.*\.)?({key})$", name)` finds something.

    Raises:
        PatternError: a key is not a regular expression, or all together are too large.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = tuple(keys)
        self._graph = _Graph()
        boundary = self._graph.add(_PREFIX, 0, "")
        self._ends = {
            self._graph.add(parse_pattern(key), self._graph.new(key, boundary), key): index
            for index, key in enumerate(self._keys)
        }
        self._start = _Place(frozenset((0,)), is_start=True)
        self._places: dict[frozenset[int], _Place] = {}
        self._num_remembered = self._num_steps = 0

    def first(self, name: str) -> str | None:
        """Return the first key that matches a name, or None.

        Raises:
            PatternError: the keys lead to more states than those of any real adapter.
        """
        line = name.removesuffix("\n")
        place = self._start
        for character in line:
            place = place.known.get(character) or self._go_on(place, character)
        ended = self._ended(place)
        if line != name:
            exits = self._graph.exits(self._graph.reach(place.states, place.is_start, is_end=True))
            ended = ended | self._ended(_Place(exits.follow("\n")))
        return self._keys[min(ended)] if ended else None

    def _go_on(self, place: _Place, character: str) -> _Place:
        if place.exits is None:
            reached = self._graph.reach(place.states, place.is_start)
            self._spend(len(reached))
            place.exits = self._graph.exits(reached)
        states = place.exits.follow(character)
        self._spend(len(states) + len(place.exits.classes))
        found = self._places.setdefault(states, _Place(states))
        place.known[character] = found
        return found

    def _ended(self, place: _Place) -> set[int]:
        if place.ended is None:
            reached = self._graph.reach(place.states, place.is_start, is_end=True)
            self._spend(len(reached))
            place.ended = {self._ends[state] for state in reached & self._ends.keys()}
        return place.ended

    def _spend(self, num_steps: int) -> None:
        self._num_steps += num_steps
        self._num_remembered += num_steps
        if self._num_steps > MAX_STEPS:
            raise PatternError(self._keys[0], "it and the keys behind it take too long to match")
        if self._num_remembered > _MAX_REMEMBERED:
            self._start.known.clear()
            self._places.clear()
            self._num_remembered = 0


_PREFIX = Repeat(Chain((Repeat(Atom("."), 0, None), Atom(r"\."))), 0, 1)


class _Graph:
    """States and the ways between them, silent ones and ones over a character."""

    def __init__(self) -> None:
        self.silent: list[list[tuple[int, Edge | None]]] = [[]]
        self.steps: list[list[tuple[str, int]]] = [[]]

    def add(self, node: Node, start: int, key: str) -> int:
        """Add what a tree describes behind a state, and return the state that it ends in."""
        match node:
            case Atom(text):
                end = self.new(key)
                self.steps[start].append((text, end))
            case Edge():
                end = self.new(key, start, node)
            case Chain(parts):
                end = start
                for part in parts:
                    end = self.add(part, end, key)
            case Choice(options):
                ends = [self.add(option, self.new(key, start), key) for option in options]
                end = self.new(key)
                for state in ends:
                    self.silent[state].append((end, None))
            case Repeat():
                end = self._repeat(node, start, key)
        return end

    def _repeat(self, node: Repeat, start: int, key: str) -> int:
        for _ in range(node.least):
            start = self.add(node.part, self.new(key, start), key)
        if node.most is None:
            start = self.new(key, start)
            self.silent[self.add(node.part, start, key)].append((start, None))
            return self.new(key, start)
        skips = [start]
        for _ in range(node.most - node.least):
            start = self.add(node.part, self.new(key, start), key)
            skips.append(start)
        end = self.new(key)
        for state in skips:
            self.silent[state].append((end, None))
        return end

    def new(self, key: str, before: int | None = None, edge: Edge | None = None) -> int:
        """Return a new state, reached silently from `before`, at an edge only if one is given."""
        state = len(self.silent)
        if state >= MAX_STATES:
            raise PatternError(key, "it and the keys before it are too large together")
        self.silent.append([])
        self.steps.append([])
        if before is not None:
            self.silent[before].append((state, edge))
        return state

    def reach(self, states: Iterable[int], is_start: bool, *, is_end: bool = False) -> set[int]:
        """Return states and those that are reached from them without a character."""
        reached = set(states)
        waiting = list(reached)
        while waiting:
            for state, edge in self.silent[waiting.pop()]:
                is_open = edge is None or (is_start if edge.is_start else is_end)
                if is_open and state not in reached:
                    reached.add(state)
                    waiting.append(state)
        return reached

    def exits(self, reached: Iterable[int]) -> _Exits:
        """Return the ways on from states over a character."""
        literals: dict[str, set[int]] = defaultdict(set)
        classes, any_character = [], set()
        for text, end in chain.from_iterable(self.steps[state] for state in reached):
            if text == ".":
                any_character.add(end)
            elif literal := _literal(text):
                literals[literal].add(end)
            else:
                classes.append((_compiled(text), end))
        return _Exits(literals, classes, any_character)


def _literal(text: str) -> str | None:
    """Return the character that an atom stands for, or None if it stands for several."""
    if len(text) == 1:
        return text
    return text[1] if len(text) == 2 and text[0] == "\\" and not text[1].isalnum() else None


@lru_cache(maxsize=1000)
def _compiled(text: str) -> re.Pattern[str]:
    return re.compile(text)
