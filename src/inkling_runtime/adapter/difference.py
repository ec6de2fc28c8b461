"""What two adapters differ in, as values: names, config, and the delta of every module.

The numbers are filled in by `distance`. Differences in names and in the config are told, but only
deltas decide whether there is a difference: two dialects spell one effect in many ways.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from inkling_runtime.adapter.adapter import Adapter
from inkling_runtime.adapter.comparison import Presence
from inkling_runtime.adapter.lora_config import LoraConfig
from inkling_runtime.adapter.sites import Site


class Fate(StrEnum):
    """What can be said of two deltas. All but the last two are proven from the elements.

    IDENTICAL: the same bytes of A and B and the same scaling, once both are in one form.
    EQUAL: the same numbers in A and in s·B, without the rank components that add nothing.
    ROUNDED: the same numbers but for one rounding of each in the coarser dtype of the two.
    DIFFERENT: none of these; the distance is measured.
    NOT_COMPARABLE: NaN or infinity on either side.
    """

    IDENTICAL = "identical"
    EQUAL = "equal"
    ROUNDED = "rounded"
    DIFFERENT = "different"
    NOT_COMPARABLE = "not comparable"

    @property
    def is_equal(self) -> bool:
        """Whether both deltas are proven to be the same."""
        return self in (Fate.IDENTICAL, Fate.EQUAL)


@dataclass(frozen=True, slots=True)
class Distance:
    """How far two deltas are apart, in the Frobenius norm over all experts of a module.

    Attributes:
        fate: what is proven.
        distance: ‖Δ1 - Δ2‖; exactly 0 where equal, None where not comparable.
        relative: the distance over the larger of both norms.
        norms: ‖Δ1‖ and ‖Δ2‖, measured only where the deltas differ.
        cosine: of the angle between both, where they differ and neither is zero.
        worst_expert: the expert that is farthest apart, or the first with NaN or infinity.
        num_experts_apart: how many experts are not proven equal.
    """

    fate: Fate
    distance: float | None = 0.0
    relative: float | None = 0.0
    norms: tuple[float, float] | None = None
    cosine: float | None = None
    worst_expert: int | None = None
    num_experts_apart: int = 0


@dataclass(frozen=True, slots=True)
class ModuleDifference:
    """A site of both adapters. `experts` is 0 where it has none or their number is not told."""

    site: Site
    presence: Presence
    experts: int
    delta: Distance

    def is_within(self, tolerance: float) -> bool:
        """Return whether the deltas are proven equal or near enough (above 0)."""
        if self.delta.fate.is_equal:
            return True
        relative = self.delta.relative
        return tolerance > 0 and relative is not None and relative <= tolerance


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """A key of adapter_config.json with two values; a key that is absent has None."""

    key: str
    first: Any
    second: Any
    decides_effect: bool


@dataclass(frozen=True, slots=True)
class NameDifference:
    """Module names on disk: how many both files have, and which only one has."""

    num_common: int
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """The answer of `inkling diff`. Modules are in site order."""

    first: Adapter
    second: Adapter
    names: NameDifference
    config: tuple[ConfigDifference, ...]
    modules: tuple[ModuleDifference, ...]

    def beyond(self, tolerance: float) -> tuple[ModuleDifference, ...]:
        """Return the modules that differ by more than a relative distance."""
        return tuple(module for module in self.modules if not module.is_within(tolerance))


def describe_difference(
    first: Adapter, second: Adapter, modules: Iterable[ModuleDifference]
) -> Difference:
    """Return the whole difference, given that of the modules."""
    return Difference(
        first,
        second,
        _compare_names(first, second),
        compare_configs(first.config, second.config),
        tuple(modules),
    )


def _compare_names(first: Adapter, second: Adapter) -> NameDifference:
    names, others = ({module.name for module in a.modules} for a in (first, second))
    return NameDifference(
        len(names & others), tuple(sorted(names - others)), tuple(sorted(others - names))
    )


_DECIDING = (
    "r",
    "lora_alpha",
    "use_rslora",
    "rank_pattern",
    "alpha_pattern",
    "target_modules",
    "target_parameters",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
)
"""Keys that decide which modules are adapted and how strongly, in the order to show them."""

_IMPLIED = {"use_rslora": False, "rank_pattern": {}, "alpha_pattern": {}}
"""What an absent key means."""


def deciding_part(config: LoraConfig) -> dict[str, Any]:
    """Return the keys that decide the effect, those that are there."""
    return {key: config.values[key] for key in _DECIDING if config.values.get(key) is not None}


def compare_configs(first: LoraConfig, second: LoraConfig) -> tuple[ConfigDifference, ...]:
    """Return the keys whose values differ, those that decide the effect first.

    Lists of targets are sets; null and what a key implies by its absence are the same as absence.
    """
    others = sorted((first.values.keys() | second.values.keys()) - set(_DECIDING))
    found = []
    for key in (*_DECIDING, *others):
        one, other = (_meaning(key, config.values.get(key)) for config in (first, second))
        if one != other:
            values = first.values.get(key), second.values.get(key)
            found.append(ConfigDifference(key, *values, key in _DECIDING))
    return tuple(found)


def _meaning(key: str, value: Any) -> Any:
    if value is None:
        return _IMPLIED.get(key)
    if key in ("target_modules", "target_parameters") and isinstance(value, list):
        return set(value)
    return value
