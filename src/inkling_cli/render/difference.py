"""`inkling diff` for people."""

import json
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from rich.text import Text

from inkling_cli.render.printable import printable
from inkling_cli.render.table import align_rows
from inkling_runtime.adapter.adapter import Adapter
from inkling_runtime.adapter.comparison import Presence
from inkling_runtime.adapter.difference import (
    ConfigDifference,
    Difference,
    Fate,
    ModuleDifference,
)
from inkling_runtime.adapter.sites import Group

_SHOWN_MODULES = 10
_SHOWN_VALUE = 60


def render_difference(difference: Difference, tolerance: float) -> Text:
    """Return both adapters, what differs in names and config, the modules, and the answer."""
    text = Text()
    for label, value in _facts(difference):
        text.append(f"{label:<8}", "bold").append(f"{printable(value)}\n")
    for line in align_rows(list(_config_rows(difference.config)), numbers=()):
        text.append(f"  {printable(line)}\n")
    text.append("\n").append_text(_group_table(difference.modules))
    apart = difference.beyond(tolerance)
    if apart:
        title = "the ten that differ most" if len(apart) > _SHOWN_MODULES else "what differs"
        text.append(f"\n{title}\n", "bold")
        for line in align_rows([_module_row(module) for module in _worst(apart)], numbers=(1,)):
            text.append(f"  {line}\n")
    text.append("\n").append(summary(difference, tolerance), "bold red" if apart else "bold green")
    return text


def _facts(difference: Difference) -> Iterable[tuple[str, str]]:
    yield "first", _describe(difference.first)
    yield "second", _describe(difference.second)
    names = difference.names
    if names.only_first or names.only_second:
        yield (
            "names",
            f"{names.num_common:,} in both, {len(names.only_first):,} only in the first, "
            f"{len(names.only_second):,} only in the second",
        )
    else:
        yield "names", f"the same {names.num_common:,}"
    for label, adapter in (("first", difference.first), ("second", difference.second)):
        if adapter.base_copies:
            count = len(adapter.base_copies)
            yield "base", f"{count:,} base weights in the {label}, not compared"
    yield "config", _count_keys(difference.config)


def _describe(adapter: Adapter) -> str:
    config = adapter.config
    rslora = " (rsLoRA)" if config.use_rslora else ""
    return (
        f"{adapter.path}: {adapter.dialect.name}, rank {config.rank}, alpha {config.alpha:g}"
        f"{rslora}, {' and '.join(adapter.dtypes)}"
    )


def _count_keys(config: Sequence[ConfigDifference]) -> str:
    if not config:
        return "no key differs"
    deciding = sum(key.decides_effect for key in config)
    keys = "1 key differs" if len(config) == 1 else f"{len(config)} keys differ"
    return f"{keys}, {deciding or 'none'} can change a delta"


def _config_rows(config: Sequence[ConfigDifference]) -> Iterable[tuple[str, ...]]:
    for key in config:
        yield key.key, _value(key.first), "→", _value(key.second)


def _value(value: Any) -> str:
    if value is None:
        return "-"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_VALUE else text[: _SHOWN_VALUE - 1] + "…"


_COUNTS = (
    ("equal", lambda module: module.delta.fate.is_equal),
    ("rounded", lambda module: _is(module, Fate.ROUNDED)),
    ("different", lambda module: _is(module, Fate.DIFFERENT)),
    ("only first", lambda module: _is_alone(module, Presence.FIRST)),
    ("only second", lambda module: _is_alone(module, Presence.SECOND)),
    ("not comparable", lambda module: module.delta.fate is Fate.NOT_COMPARABLE),
)
"""The columns that count modules, each module in one of them."""


def _is(module: ModuleDifference, fate: Fate) -> bool:
    return module.presence is Presence.BOTH and module.delta.fate is fate


def _is_alone(module: ModuleDifference, presence: Presence) -> bool:
    return module.presence is presence and module.delta.fate is Fate.DIFFERENT


def _group_table(modules: Sequence[ModuleDifference]) -> Text:
    """Return a line for each group. Columns of counts that are zero throughout are left out."""
    shown = [count for count in _COUNTS if count[0] == "equal" or any(map(count[1], modules))]
    rows = [("group", "modules", *(title for title, _ in shown), "largest", "median")]
    for group in Group:
        own = [module for module in modules if module.site.kind.group is group]
        if own:
            counts = [f"{sum(map(belongs, own)):,}" for _, belongs in shown]
            rows.append((group.value, f"{len(own):,}", *counts, *_spread(own)))
    text = Text()
    for index, line in enumerate(align_rows(rows, numbers=range(1, len(rows[0])))):
        text.append(line + "\n", "bold" if index == 0 else None)
    text.append("largest and median: distance of the deltas relative to the larger one\n", "dim")
    return text


def _spread(modules: Sequence[ModuleDifference]) -> tuple[str, str]:
    found = [m.delta.relative for m in modules if m.delta.relative is not None]
    return (f"{max(found):.3g}", f"{median(found):.3g}") if found else ("-", "-")


def _worst(modules: Sequence[ModuleDifference]) -> list[ModuleDifference]:
    """Return the modules that are farthest apart, those that cannot be compared before all."""

    def order(module: ModuleDifference) -> tuple[bool, float]:
        relative = module.delta.relative
        return relative is not None, -(relative or 0.0)

    return sorted(modules, key=order)[:_SHOWN_MODULES]


def _module_row(module: ModuleDifference) -> tuple[str, ...]:
    delta = module.delta
    relative = "-" if delta.relative is None else f"{delta.relative:.3g}"
    return str(module.site), relative, "; ".join(_remarks(module))


def _remarks(module: ModuleDifference) -> Iterable[str]:
    delta = module.delta
    if module.presence is not Presence.BOTH:
        yield f"only in the {module.presence.value}"
    if delta.fate is Fate.NOT_COMPARABLE:
        yield "not comparable: NaN or infinity"
    if delta.fate is Fate.ROUNDED:
        yield "by one rounding"
    if delta.distance is not None:
        yield f"distance {delta.distance:.3g}"
    if delta.cosine is not None:
        yield f"cosine {delta.cosine:.6f}"
    if module.experts:
        how = "the first" if delta.fate is Fate.NOT_COMPARABLE else "the most"
        yield f"{delta.num_experts_apart} of {module.experts} experts, {delta.worst_expert} {how}"


def summary(difference: Difference, tolerance: float) -> str:
    """Return the answer in a sentence."""
    total, apart = len(difference.modules), difference.beyond(tolerance)
    modules = "1 module" if total == 1 else f"{total:,} modules"
    if apart:
        verb = "differs" if total == 1 else "differ"
        is_rounding = all(module.delta.fate is Fate.ROUNDED for module in apart)
        how = ", by no more than one rounding" if is_rounding else ""
        return f"{len(apart):,} of {modules} {verb}{how}"
    near = sum(not module.delta.fate.is_equal for module in difference.modules)
    if near:
        return f"No difference: {modules}, {near:,} of them within the tolerance {tolerance:g}"
    return f"No difference: {modules}, every delta equal"
