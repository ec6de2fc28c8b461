"""The numbers of an adapter for people and for programs: totals, shares, a picture by layer."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.text import Text

from inkling_cli.render.heat import Cell, Heat, State, make_heat
from inkling_cli.render.layer_rows import layer_ruler, row_label
from inkling_cli.render.printable import printable
from inkling_runtime.adapter.sites import Group
from inkling_runtime.adapter.values import AdapterValues, DeltaValues, total_norm

_SHADES = "░▒▓█"
_MARKS = {State.ZERO: "·", State.NOT_FINITE: "!", State.NOT_COMPUTED: "?"}
_SHOWN_NAMES = 3


@dataclass(frozen=True, slots=True)
class GroupValues:
    """One group's deltas: places with a norm, share of Σ‖ΔW‖², norm, effective ranks, rank."""

    group: Group
    num_places: int
    share: float
    norm: float
    effective_ranks: tuple[float, ...]
    """Sorted; of the places that are not zero."""
    rank: int


def summarise_groups(values: AdapterValues) -> tuple[GroupValues, ...]:
    """Return what each group adds, in the order of groups."""
    shares = values.group_shares()
    by_group: dict[Group, list[DeltaValues]] = {}
    for site, delta in values.sites.items():
        by_group.setdefault(site.kind.group, []).append(delta)
    return tuple(
        GroupValues(
            group,
            len(deltas),
            shares.get(group, 0.0),
            total_norm(deltas),
            tuple(sorted(d.effective_rank for d in deltas if d.effective_rank is not None)),
            max(delta.rank for delta in deltas),
        )
        for group in Group
        if (deltas := by_group.get(group))
    )


def render_values(values: AdapterValues) -> Text:
    """Return what was read, each group's share, a picture by layer, and what is left out."""
    text = Text()
    for label, value in _facts(values):
        text.append(f"{label:<10}", "bold").append(f"{printable(value)}\n")
    if values.sites:
        text.append("\n").append_text(_group_table(summarise_groups(values)))
    heat = make_heat(values)
    if heat.rows:
        text.append("\n").append_text(_picture(heat))
    text.rstrip()
    return text.append("\n")


def _facts(values: AdapterValues) -> Iterable[tuple[str, str]]:
    tensors = values.tensors
    bad = [name for name, tensor in tensors.items() if not tensor.is_finite]
    state = f"NaN or Inf in {_names(bad)}" if bad else "all finite" if tensors else "none judged"
    yield "values", f"{values.bytes_read:,} bytes of {len(tensors):,} tensors read, {state}"
    if values.not_read:
        yield "not read", f"{len(values.not_read):,} tensors: {_names(list(values.not_read))}"
    if values.sites:
        zero = sum(delta.norm == 0 for delta in values.sites.values())
        yield (
            "norm",
            f"{values.norm:.4g} over {len(values.sites):,} places (‖s·B·A‖, Frobenius)"
            + (f", {zero:,} of them zero" if zero else ""),
        )
    if values.not_finite:
        yield "no norm", f"NaN or Inf in {_names([str(site) for site in values.not_finite])}"
    if values.not_computed:
        first = next(iter(values.not_computed.values()))
        sites = _names([str(site) for site in values.not_computed])
        yield "no norm", f"{len(values.not_computed):,} places: {sites}; the first: {first}"


def _names(names: list[str]) -> str:
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _group_table(groups: tuple[GroupValues, ...]) -> Text:
    rows = [("group", "places", "share", "norm", "effective rank", "of")]
    rows += [
        (
            group.group.value,
            f"{group.num_places:,}",
            f"{group.share:.1%}",
            f"{group.norm:.4g}",
            _ranks(group.effective_ranks),
            str(group.rank),
        )
        for group in groups
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = Text()
    for index, row in enumerate(rows):
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        text.append("  ".join(cells) + "\n", "bold" if index == 0 else None)
    return text


def _ranks(ranks: tuple[float, ...]) -> str:
    """Return the median of effective ranks and, where they differ, their range."""
    if not ranks:
        return "-"
    shown = f"{median(ranks):.1f}"
    first, last = f"{ranks[0]:.1f}", f"{ranks[-1]:.1f}"
    return shown if first == last else f"{shown} ({first} to {last})"


def _picture(heat: Heat) -> Text:
    """Return a row for each kind of module, the darker the larger the norm."""
    text = Text("norm of the delta by layer", "bold")
    text.append(f"   {_legend(heat)}\n", "dim")
    text.append(layer_ruler(len(heat.layers)) + "\n", "dim")
    for label, cells in heat.rows:
        line = "".join(map(_character, cells)).rstrip()
        text.append(row_label(label)).append(line + "\n", "green")
    return text


def _legend(heat: Heat) -> str:
    steps = len(_SHADES)
    shades = [
        f"{shade} to {heat.norm_at((index + 1) / steps):.3g}" for index, shade in enumerate(_SHADES)
    ]
    states = {cell.state for _, row in heat.rows for cell in row if cell is not None}
    marks = [f"{mark} {state.value}" for state, mark in _MARKS.items() if state in states]
    return "  ".join([*(shades if heat.largest else []), *marks])


def _character(cell: Cell | None) -> str:
    if cell is None:
        return " "
    if cell.state is not State.NORM:
        return _MARKS[cell.state]
    return _SHADES[min(int(cell.darkness * len(_SHADES)), len(_SHADES) - 1)]


def values_object(values: AdapterValues) -> dict[str, Any]:
    """Return the JSON object of an adapter's numbers."""
    return {
        "bytes_read": values.bytes_read,
        "num_tensors_read": len(values.tensors),
        "not_read": [{"tensor": name, "reason": why} for name, why in values.not_read.items()],
        "not_finite": [
            {"tensor": name, "num_nan": tensor.num_nan, "num_inf": tensor.num_inf}
            for name, tensor in values.tensors.items()
            if not tensor.is_finite
        ],
        "norm": values.norm,
        "groups": [_group_object(group) for group in summarise_groups(values)],
        "layers": [
            {"layer": layer if layer >= 0 else None, "norm": norm}
            for layer, norm in values.layer_norms().items()
        ],
        "sites": [
            {"site": str(site), **_delta_object(delta)} for site, delta in values.sites.items()
        ],
        "not_computed": [
            *({"site": str(site), "reason": "NaN or Inf"} for site in values.not_finite),
            *({"site": str(s), "reason": why} for s, why in values.not_computed.items()),
        ],
    }


def _group_object(group: GroupValues) -> dict[str, Any]:
    ranks = group.effective_ranks
    return {
        "group": group.group.value,
        "num_places": group.num_places,
        "share": group.share,
        "norm": group.norm,
        "effective_rank": {"median": median(ranks), "min": ranks[0], "max": ranks[-1]}
        if ranks
        else None,
    }


def _delta_object(delta: DeltaValues) -> dict[str, Any]:
    norms = delta.expert_norms
    return {
        "norm": delta.norm,
        "effective_rank": delta.effective_rank,
        "rank": delta.rank,
        "scaling": delta.scaling,
        "experts": {
            "count": len(norms),
            "num_zero": delta.num_zero,
            "min_norm": min(norms),
            "max_norm": max(norms),
        }
        if norms
        else None,
    }
