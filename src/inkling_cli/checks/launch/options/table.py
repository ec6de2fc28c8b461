"""Which options an engine's server command has, and how each takes its values.

Not a parser: `parse/arguments.py` reads words against these tables. The trap: the two engines
spell and negate differently. vLLM takes `_` for `-` and undoes `--enable-x` by `--disable-x`;
SGLang takes neither, and most of its switches cannot be undone at all.

A word of a table holds for every known version, unless it says otherwise: `--new>=0.34.0` came
with 0.34.0, `--old<0.34.0` went with it, and likewise a choice of an option.
"""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import ModuleType
from typing import Any

from inkling_cli.checks.engine import Engine, holds_between
from inkling_cli.checks.launch.launch import parse_integer
from inkling_cli.checks.launch.options import sglang, vllm

_JSON_STRING = re.compile(r'("(?:[^"\\]|\\.)*")')
_SIZE_IN_JSON = re.compile(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b")


class Arity(Enum):
    """How many values follow an option."""

    NONE = "none"
    ONE = "one"
    AT_MOST_ONE = "at most one"
    MANY = "many"


class ValueKind(Enum):
    """What an option's value must look like."""

    TEXT = "text"
    INTEGER = "a whole number"
    SIZE = "a whole number, `8k` and `2M` included"
    NUMBER = "a number"
    JSON = "JSON"
    JSON_OBJECT = "a JSON object"


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One option: its canonical name and what it takes."""

    name: str
    arity: Arity
    kind: ValueKind = ValueKind.TEXT
    negations: tuple[str, ...] = ()
    """Spellings that switch it off."""
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    """The least number that the engine takes."""
    may_be_none: bool = False
    """Whether the word `None`, or an empty one, stands for no value."""
    size_endings: str = ""
    """The pattern of a size that is not a whole number alone."""
    needs_value: bool = False
    """Whether an option of many values takes at least one."""
    special_words: tuple[str, ...] = ()
    """Values that it takes although they are not of its kind or below its least value."""
    is_folded: bool = False
    """Whether a choice may be spelled with capitals, and with `-` for `_`."""

    def is_choice(self, value: str) -> bool:
        """Return whether a value is one of the choices, as far as there are any."""
        if value in ("", "None") and self.may_be_none:
            return True
        plain = value.lower().replace("-", "_") if self.is_folded else value
        return not self.choices or plain in self.choices

    def takes(self, value: str) -> bool:
        """Return whether a value can be read as what the option takes, whatever its choices."""
        is_none = value in ("", "None") and self.may_be_none
        if is_none or value.strip().lower() in self.special_words:
            return True
        match self.kind:
            case ValueKind.INTEGER:
                return parse_integer(value) is not None
            case ValueKind.SIZE:
                return parse_integer(value) is not None or bool(
                    re.fullmatch(self.size_endings, value.strip())
                )
            case ValueKind.NUMBER:
                return parse_number(value) is not None
            case ValueKind.JSON:
                return is_json(value)
            case ValueKind.JSON_OBJECT:
                return read_json_object(value) is not None
        return True


@dataclass(frozen=True, slots=True)
class Match:
    """What a spelling means: the option, or the several that it may abbreviate."""

    spec: OptionSpec | None
    enabled: bool = True
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OptionTable:
    """All options of one engine, by spelling."""

    spellings: Mapping[str, tuple[OptionSpec, bool]]
    """Every spelling → (option, whether the spelling switches it on)."""
    underscores: bool
    """Whether `--max_loras` is read as `--max-loras`."""

    def spec(self, name: str) -> OptionSpec:
        """Return the option of a canonical name (it must exist: rules name only known ones)."""
        return self.spellings[name][0]

    def match(self, spelling: str) -> Match:
        """Return the option that a spelling means; unique prefixes are abbreviations, as argparse.

        `spelling` has no `=value`; a dotted part (`--speculative-config.method`) is cut off.
        """
        name = spelling.partition(".")[0]
        if self.underscores and name.startswith("--"):
            name = name.replace("_", "-")
        if name in self.spellings:
            return Match(*self.spellings[name])
        if not name.startswith("--") or len(name) < 4:
            return Match(None)
        found = [known for known in self.spellings if known.startswith(name)]
        if len({self.spellings[known] for known in found}) == 1:
            return Match(*self.spellings[found[0]])
        return Match(None, candidates=tuple(found))

    def nearest(self, spelling: str) -> str | None:
        """Return the known spelling that looks most like an unknown one, if any is near."""
        name = "--" + spelling.partition(".")[0].lstrip("-").replace("_", "-")
        near = difflib.get_close_matches(name, self.spellings, n=1, cutoff=0.8)
        return near[0] if near else None


@cache
def option_table(engine: Engine, version: str | None = None) -> OptionTable:
    """Return the options of an engine's version, the newest known one if none is given."""
    described = engine.described_version(version)
    if engine is Engine.VLLM:
        return _build(vllm, described, underscores=True, paired_verbs=True)
    return _build(sglang, described, underscores=False, paired_verbs=False)


def _build(data: ModuleType, version: str, *, underscores: bool, paired_verbs: bool) -> OptionTable:
    choices = {name: words_of(text, version) for name, text in data.CHOICES.items()}
    spellings: dict[str, tuple[OptionSpec, bool]] = {}
    groups = (
        (data.SWITCHES, Arity.NONE, ValueKind.TEXT),
        (data.INTEGERS, Arity.ONE, ValueKind.INTEGER),
        (data.SIZES, Arity.ONE, ValueKind.SIZE),
        (data.NUMBERS, Arity.ONE, ValueKind.NUMBER),
        (data.JSON_OBJECTS, Arity.ONE, ValueKind.JSON_OBJECT),
        (data.JSON_VALUES, Arity.ONE, ValueKind.JSON),
        (data.VALUES, Arity.ONE, ValueKind.TEXT),
        (data.LISTS, Arity.MANY, ValueKind.TEXT),
        (data.INTEGER_LISTS, Arity.MANY, ValueKind.INTEGER),
        (data.NUMBER_LISTS, Arity.MANY, ValueKind.NUMBER),
        (data.OPTIONAL, Arity.AT_MOST_ONE, ValueKind.TEXT),
    )
    for names, arity, kind in groups:
        for name in words_of(names, version):
            spec = OptionSpec(
                name,
                arity,
                kind,
                choices=choices.get(name, ()),
                minimum=data.MINIMUMS.get(name),
                may_be_none=name in data.MAY_BE_NONE.split(),
                size_endings=data.SIZE_ENDINGS,
                needs_value=name in data.NEEDS_VALUE.split(),
                special_words=tuple(data.SPECIAL_WORDS.get(name, "").split()),
                is_folded=name in data.FOLDED.split(),
            )
            spellings[name] = (spec, True)
    for name in words_of(data.PAIRS, version):
        spec = OptionSpec(name, Arity.NONE, negations=_negations(name, paired_verbs))
        spellings[name] = (spec, True)
        spellings.update(dict.fromkeys(spec.negations, (spec, False)))
    for alias, name in data.ALIASES.items():
        if name in spellings:
            spellings[alias] = spellings[name]
    return OptionTable(spellings, underscores)


def words_of(text: str, version: str) -> tuple[str, ...]:
    """Return the words of a table that hold for a version, without their bounds."""
    words = (re.fullmatch(r"(.+?)(?:(>=|<)([\d.]+))?", word) for word in text.split())
    found = ((w[1], w[2], w[3]) for w in words if w)
    return tuple(
        word
        for word, sign, bound in found
        if holds_between(version, bound if sign == ">=" else None, bound if sign == "<" else None)
    )


def parse_number(text: str) -> float | None:
    """Return a number as Python's `float` reads it, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def read_json_object(text: str) -> dict[str, Any] | None:
    """Return a JSON object, in which numbers may have the endings of a size, or None."""
    parts = _JSON_STRING.split(text)
    parts[::2] = [_SIZE_IN_JSON.sub("0", part) for part in parts[::2]]
    try:
        value = json.loads("".join(parts))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_json(text: str) -> bool:
    """Return whether a text is JSON of any kind."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _negations(name: str, paired_verbs: bool) -> tuple[str, ...]:
    negated = "--no-" + name.removeprefix("--")
    for verb, inverse in (("--enable-", "--disable-"), ("--disable-", "--enable-")):
        if paired_verbs and name.startswith(verb):
            return (inverse + name.removeprefix(verb), negated)
    return (negated,)
