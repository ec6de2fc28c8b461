"""The words of proofs: how much is asked for, what was shown, and of which work.

No numpy here: commands import this for their options.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from inkling_runtime.adapter.adapter import Adapter


class Verification(StrEnum):
    """Which modules of a written adapter are read back and proven.

    ALL: every one. COMPUTED: those whose tensors are not plain copies of stored bytes. NONE: none.
    """

    ALL = "all"
    COMPUTED = "computed"
    NONE = "none"


class Proven(StrEnum):
    """What was shown of a module that was written, the weakest first.

    NOTHING: it was not read back.
    RE_EVALUATED: it is what the plan gives when it is evaluated once more.
    ROUNDED: its delta is the source's but for one rounding of each element.
    EQUAL: A and s·B are the numbers of the source, without components that add nothing.
    BYTES: A and B are the bytes of the source, once both are in one form, for the same scaling.
    """

    NOTHING = "nothing"
    RE_EVALUATED = "re-evaluated"
    ROUNDED = "rounded"
    EQUAL = "equal"
    BYTES = "bytes"

    @property
    def strength(self) -> int:
        """How much it says; more is more."""
        return list(Proven).index(self)


@dataclass(frozen=True, slots=True)
class Proof:
    """What was shown of each module of the result, by its name on disk, sorted."""

    modules: Mapping[str, Proven]

    @property
    def counts(self) -> Mapping[Proven, int]:
        """How many modules it was, the strongest first."""
        found = Counter(self.modules.values())
        return {proven: found[proven] for proven in reversed(Proven) if found[proven]}


def weakest(found: Sequence[Proven]) -> Proven:
    """Return what holds for all."""
    return min(found, key=lambda proven: proven.strength)


class Action(StrEnum):
    """What was done."""

    CONVERT = "convert"
    RESIZE = "resize"
    MERGE = "merge"


@dataclass(frozen=True, slots=True)
class Account:
    """What was done, to which adapters, and what else the user asked for.

    `wishes` are values of JSON that come on top of the options of the conversion.
    """

    action: Action
    sources: tuple[Adapter, ...]
    wishes: Mapping[str, Any] = field(default_factory=dict)
