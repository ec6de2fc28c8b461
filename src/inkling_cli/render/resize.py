"""What a resized adapter keeps, for people and for programs."""

from collections.abc import Iterable
from math import sqrt
from typing import Any

from rich.text import Text

from inkling_cli.render.conversion import conversion_object
from inkling_cli.render.table import align_rows
from inkling_runtime.adapter.resize.kept import KeptModule, Resize, format_kept, total_of
from inkling_runtime.adapter.sites import SiteKind

_SHOWN_MODULES = 5


def render_kept(resize: Resize) -> Text:
    """Return the energy kept by kind of module, and the modules that keep the least."""
    modules = resize.modules
    rows: list[tuple[str, ...]] = [("modules", "number", "rank", "energy kept", "least", "error")]
    for kind, own in _by_kind(modules).items():
        rows.append((kind, *_row(own, resize.rank)))
    rows.append(("all", *_row(modules, resize.rank)))
    text = Text()
    for index, line in enumerate(align_rows(rows, numbers=range(1, 6))):
        text.append(f"{line}\n", "bold" if index in (0, len(rows) - 1) else None)
    text.append("error: ‖ΔW − ΔW'‖ / ‖ΔW‖ of all modules of a row, before rounding\n", "dim")
    losing = [module for module in modules if module.lost]
    if losing:
        text.append("\nthe modules that keep the least\n", "bold")
        for line in align_rows([_module_row(one) for one in _worst(losing)], numbers=(1,)):
            text.append(f"  {line}\n")
    text.rstrip()
    return text


def _by_kind(modules: Iterable[KeptModule]) -> dict[str, list[KeptModule]]:
    kinds: dict[str, list[KeptModule]] = {}
    order = list(SiteKind)
    for module in sorted(modules, key=lambda module: order.index(module.sites[0].kind)):
        kinds.setdefault(" and ".join(site.kind.value for site in module.sites), []).append(module)
    return kinds


def _row(modules: Iterable[KeptModule], rank: int) -> tuple[str, ...]:
    found = list(modules)
    total, worst = total_of(found), max(found, key=lambda module: module.lost_share)
    before = sorted({module.rank_before for module in found})
    ranks = f"{before[0]}" if len(before) == 1 else f"{before[0]}-{before[-1]}"
    return (
        f"{len(found):,}",
        f"{ranks} → {rank}",
        format_kept(total),
        format_kept(worst),
        f"{total.relative_error:.3g}",
    )


def _worst(modules: Iterable[KeptModule]) -> list[KeptModule]:
    return sorted(modules, key=lambda module: -module.lost_share)[:_SHOWN_MODULES]


def _module_row(module: KeptModule) -> tuple[str, ...]:
    return module.name, format_kept(module), f"error {module.relative_error:.3g}"


def resize_object(resize: Resize, out: str, is_written: bool) -> dict[str, Any]:
    """Return the JSON object of a resized adapter, less `version` and `command`."""
    return conversion_object(resize.conversion, out, is_written) | kept_object(resize)


def kept_object(resize: Resize) -> dict[str, Any]:
    """Return what is kept, as keys of a JSON object."""
    total = resize.total
    return {
        "rank": resize.rank,
        "energy_kept": total.kept,
        "relative_error": total.relative_error,
        "worst": _kept_module_object(resize.worst),
        "modules": [_kept_module_object(module) for module in resize.modules],
    }


def _kept_module_object(module: KeptModule) -> dict[str, Any]:
    return {
        "sites": [str(site) for site in module.sites],
        "rank_before": module.rank_before,
        "norm": sqrt(module.energy),
        "energy_kept": module.kept,
        "relative_error": module.relative_error,
    }
