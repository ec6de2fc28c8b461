"""What becomes of an adapter's modules in the hands of a consumer, one by one. Data alone.

Each consumer has a function from an adapter (and a launch) to effects; rules speak of effects by
their cause, and verdicts count them. A module without an effect would be one that nobody looked
at, so every module on disk gets one.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from inkling_runtime.errors import format_names


class Fate(StrEnum):
    """What a consumer does with a module.

    applied: as it is meant. dropped: accepted, and no number of it arrives. misapplied: some
    arrive, but not as they are meant. refused: the consumer says no. not_checked: what
    decides it is not known here.
    """

    APPLIED = "applied"
    DROPPED = "dropped"
    MISAPPLIED = "misapplied"
    REFUSED = "refused"
    NOT_CHECKED = "not_checked"


@dataclass(frozen=True, slots=True)
class Effect:
    """The fate of one module.

    Attributes:
        module: its name on disk, without the ending `.lora_A.weight`; of a tensor that is no
            factor the whole name.
        fate: what becomes of it.
        cause: why, as a word that rules look for; empty where it is applied.
        reason: why, in words; empty where it is applied.
        is_meant: whether an effect is meant at all; it is not of a copy of base weights that was
            saved beside the factors.
    """

    module: str
    fate: Fate
    cause: str = ""
    reason: str = ""
    is_meant: bool = True


_ENDING = re.compile(r"\.lora_(?:embedding_)?([AB])(?:\.[^.]+)*$")


def module_name(tensor: str) -> str:
    """Return the module that a tensor is a factor of; of any other tensor its own name."""
    return _ENDING.sub("", tensor)


def factor_of(tensor: str) -> str | None:
    """Return which factor a tensor is by its name, `A` or `B`; None where it is none."""
    match = _ENDING.search(tensor)
    return None if match is None else match[1]


def modules_of(effects: Iterable[Effect], fate: Fate) -> list[str]:
    """Return the modules of one fate, in order."""
    return [effect.module for effect in effects if effect.fate is fate]


def with_cause(effects: Iterable[Effect], *causes: str) -> list[Effect]:
    """Return the effects that have one of these causes and are meant to be others, in order."""
    return [effect for effect in effects if effect.cause in causes and effect.is_meant]


def format_share(found: Sequence[Effect], effects: Sequence[Effect]) -> str:
    """Return how much is concerned: `6 of 30 modules (`a`, `b`, `c` and 3 more)`."""
    names = format_names([effect.module for effect in found])
    return f"{len(found)} of {len(effects)} modules ({names})"


def by_reason(effects: Sequence[Effect]) -> dict[tuple[Fate, str, str], list[str]]:
    """Return fate, cause and reason → the modules, for all that is not applied."""
    found: dict[tuple[Fate, str, str], list[str]] = defaultdict(list)
    for effect in effects:
        if effect.fate is not Fate.APPLIED:
            found[effect.fate, effect.cause, effect.reason].append(effect.module)
    return dict(found)
