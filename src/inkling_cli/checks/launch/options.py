"""Which options an engine's server command has, and how each takes its values.

Not a parser: `parse_arguments.py` reads words against these tables. The trap: the two engines
spell and negate differently. vLLM takes `_` for `-` and undoes `--enable-x` by `--disable-x`;
SGLang takes neither, and most of its switches cannot be undone at all.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import ModuleType

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.launch import options_sglang, options_vllm


class Arity(Enum):
    """How many values follow an option."""

    NONE = "none"
    ONE = "one"
    AT_MOST_ONE = "at most one"
    MANY = "many"


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One option: its canonical name and what it takes."""

    name: str
    arity: Arity
    is_integer: bool = False
    negations: tuple[str, ...] = ()
    """Spellings that switch it off."""
    choices: tuple[str, ...] = ()


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
def option_table(engine: Engine) -> OptionTable:
    """Return the options of an engine."""
    if engine is Engine.VLLM:
        return _build(options_vllm, underscores=True, paired_verbs=True)
    return _build(options_sglang, underscores=False, paired_verbs=False)


def _build(data: ModuleType, *, underscores: bool, paired_verbs: bool) -> OptionTable:
    choices = {name: tuple(text.split()) for name, text in data.CHOICES.items()}
    spellings: dict[str, tuple[OptionSpec, bool]] = {}
    groups = (
        (data.SWITCHES, Arity.NONE, False),
        (data.INTEGERS, Arity.ONE, True),
        (data.VALUES, Arity.ONE, False),
        (data.LISTS, Arity.MANY, False),
        (data.OPTIONAL, Arity.AT_MOST_ONE, False),
    )
    for names, arity, is_integer in groups:
        for name in names.split():
            spec = OptionSpec(name, arity, is_integer, choices=choices.get(name, ()))
            spellings[name] = (spec, True)
    for name in data.PAIRS.split():
        spec = OptionSpec(name, Arity.NONE, negations=_negations(name, paired_verbs))
        spellings[name] = (spec, True)
        spellings.update(dict.fromkeys(spec.negations, (spec, False)))
    for alias, name in data.ALIASES.items():
        spellings[alias] = spellings[name]
    return OptionTable(spellings, underscores)


def _negations(name: str, paired_verbs: bool) -> tuple[str, ...]:
    negated = "--no-" + name.removeprefix("--")
    for verb, inverse in (("--enable-", "--disable-"), ("--disable-", "--enable-")):
        if paired_verbs and name.startswith(verb):
            return (inverse + name.removeprefix(verb), negated)
    return (negated,)
