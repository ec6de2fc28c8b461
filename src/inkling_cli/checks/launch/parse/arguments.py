"""The words after `vllm serve` or `sglang serve` → option uses, as the engine reads them.

No value is interpreted here beyond what decides where the next word belongs. The trap: a list
option (`--lora-modules a=x b=y`) takes every word up to the next option, so a model written after
it is taken for an adapter, by the engine as by this parser.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.launch import Argument, OptionUse, Problem, ProblemKind
from inkling_cli.checks.launch.options.table import (
    Arity,
    Match,
    OptionSpec,
    OptionTable,
    option_table,
)

_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")


@dataclass
class Arguments:
    """What the words said."""

    uses: list[OptionUse] = field(default_factory=list)
    positionals: list[Argument] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def is_unknown(text: str) -> bool:
    """Return whether a word holds a shell expansion whose value is not known."""
    return "$" in text


def parse_arguments(
    words: Sequence[Argument],
    engine: Engine,
    version: str | None,
    file: str,
    *,
    is_config: bool = False,
) -> Arguments:
    """Return the option uses and positionals of the words of a version's server command."""
    return _Parser(words, option_table(engine, version), engine, file, is_config).parse()


class _Parser:
    def __init__(
        self,
        words: Sequence[Argument],
        table: OptionTable,
        engine: Engine,
        file: str,
        is_config: bool,
    ) -> None:
        self.words = words
        self.table = table
        self.engine = engine
        self.file = file
        self.is_config = is_config
        self.index = 0
        self.result = Arguments()

    def parse(self) -> Arguments:
        while self.index < len(self.words):
            word = self.words[self.index]
            self.index += 1
            if word.text == "--":
                self.result.positionals.extend(self.words[self.index :])
                break
            if _is_option(word.text):
                self._option(word)
            else:
                self.result.positionals.append(word)
        return self.result

    def _option(self, word: Argument) -> None:
        spelled, equals, value = word.text.partition("=")
        inline = value if equals else None
        if self.engine is Engine.VLLM and spelled.startswith("-O"):
            spelled, inline = self._optimization_level(spelled, inline)
        match = self.table.match(spelled)
        if match.spec is None and "_" in spelled:
            match = self.table.match(spelled.replace("_", "-"))
            if match.spec is not None:
                self._problem(ProblemKind.UNDERSCORE_OPTION, spelled, word)
        if match.spec is None:
            self._unknown(spelled, inline, word, match)
            return
        name = match.spec.name + "".join(spelled.partition(".")[1:])
        first = self.index
        values = self._values(match.spec, spelled, inline, word)
        place = Location(self.file, word.line, self._key(name, spelled))
        words = (word, *self.words[first : self.index])
        self.result.uses.append(OptionUse(name, values, spelled, place, match.enabled, words))

    def _key(self, name: str, spelled: str) -> str:
        """Return what the input calls an option: a config file has no dashes in front."""
        return spelled.lstrip("-") if self.is_config else name

    def _optimization_level(self, spelled: str, inline: str | None) -> tuple[str, str | None]:
        level = spelled.removeprefix("-O")
        if level and inline is not None:
            return "--optimization-level", f"{level}={inline}"
        return "--optimization-level", inline if inline is not None else level or None

    def _values(
        self, spec: OptionSpec, spelled: str, inline: str | None, word: Argument
    ) -> tuple[str, ...]:
        arity = Arity.ONE if "." in spelled else spec.arity
        if arity is Arity.NONE:
            if inline is not None:
                self._problem(ProblemKind.UNEXPECTED_VALUE, f"{spelled}={inline}", word, spelled)
            return ()
        if inline is not None:
            return (inline,)
        most = len(self.words) if arity is Arity.MANY else 1
        values = self._following(most)
        if not values and arity is Arity.ONE:
            self._problem(ProblemKind.MISSING_VALUE, spelled, word)
        return values

    def _following(self, most: int) -> tuple[str, ...]:
        values: list[str] = []
        while len(values) < most and self.index < len(self.words):
            text = self.words[self.index].text
            if text == "--" or _is_option(text):
                break
            values.append(text)
            self.index += 1
        return tuple(values)

    def _unknown(self, spelled: str, inline: str | None, word: Argument, match: Match) -> None:
        if inline is None:
            self._following(1)
        if is_unknown(spelled):
            return
        if match.candidates:
            self._problem(ProblemKind.AMBIGUOUS_OPTION, spelled, word, *match.candidates)
        elif nearest := self.table.nearest(spelled):
            self._problem(ProblemKind.MISSPELT_OPTION, spelled, word, nearest)
        else:
            self._problem(ProblemKind.UNKNOWN_OPTION, spelled, word)

    def _problem(self, kind: ProblemKind, text: str, word: Argument, *detail: str) -> None:
        name = text.partition("=")[0]
        location = Location(self.file, word.line, self._key(name, name))
        self.result.problems.append(Problem(kind, text, location, detail, word))


def _is_option(text: str) -> bool:
    return (
        len(text) > 1
        and text[0] == "-"
        and not _NEGATIVE_NUMBER.fullmatch(text)
        and (" " not in text or "=" in text)
    )
