"""The norms of an adapter's deltas as a picture: rows are kinds of modules, columns are layers.

Neither characters nor colours: those are the terminal's and the plot writers'. Darkness follows
the logarithm of the norm, because experts together outweigh an attention matrix many times.
"""

import math
from dataclasses import dataclass
from enum import Enum

from inkling_cli.render.layer_rows import LAYER_ROWS
from inkling_runtime.adapter.sites import HEAD_SITE, Site
from inkling_runtime.adapter.values import AdapterValues

_MOST_COLUMNS = 512
_DECADES = 2.0
"""Norms that are smaller than the largest by so many powers of ten are all as light."""


class State(Enum):
    """What is known of a cell."""

    NORM = "norm"
    ZERO = "zero"
    NOT_FINITE = "NaN or Inf"
    NOT_COMPUTED = "not computed"


@dataclass(frozen=True, slots=True)
class Cell:
    """A site, or all sites of a layer; `darkness` runs from 0 to 1 and is 0 without a norm."""

    name: str
    state: State
    norm: float = 0.0
    darkness: float = 0.0

    @property
    def title(self) -> str:
        """The cell in words."""
        return (
            f"{self.name}: {f'{self.norm:.4g}' if self.state is State.NORM else self.state.value}"
        )


@dataclass(frozen=True, slots=True)
class Heat:
    """The picture: the number of each column's layer, and the cells of each row."""

    layers: tuple[int, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]
    largest: float
    """The largest norm of a cell."""

    def norm_at(self, darkness: float) -> float:
        """Return the norm that a darkness stands for."""
        return float(self.largest * 10 ** ((darkness - 1) * _DECADES))


def make_heat(values: AdapterValues) -> Heat:
    """Return the picture of an adapter; it has no rows where no delta is known."""
    layers = _columns(values)
    norms = {site: delta.norm for site, delta in values.sites.items()}
    by_layer = values.layer_norms()
    largest = max([*norms.values(), *by_layer.values()], default=0.0)
    rows: list[tuple[str, tuple[Cell | None, ...]]] = []
    for label, kind in LAYER_ROWS:
        rows.append((label, tuple(_site_cell(values, Site(n, kind), largest) for n in layers)))
    rows.append(
        ("all", tuple(_cell(f"layers.{n}", by_layer.get(n), largest) for n in layers)),
    )
    head = _site_cell(values, HEAD_SITE, largest)
    rows.append(("head", (head, *(None for _ in layers[1:])) if layers else (head,)))
    return Heat(layers, tuple((label, row) for label, row in rows if any(row)), largest)


def _columns(values: AdapterValues) -> tuple[int, ...]:
    """Return the layers from the first on; only those with a delta where numbers are absurd."""
    found = {site.layer for site in (*values.sites, *values.not_finite, *values.not_computed)}
    layers = sorted(layer for layer in found if layer >= 0)
    if layers and layers[-1] < _MOST_COLUMNS:
        return tuple(range(layers[-1] + 1))
    return tuple(layers[:_MOST_COLUMNS])


def _site_cell(values: AdapterValues, site: Site, largest: float) -> Cell | None:
    if site in values.not_finite:
        return Cell(str(site), State.NOT_FINITE)
    if site in values.not_computed:
        return Cell(str(site), State.NOT_COMPUTED)
    delta = values.sites.get(site)
    return _cell(str(site), None if delta is None else delta.norm, largest)


def _cell(name: str, norm: float | None, largest: float) -> Cell | None:
    if norm is None:
        return None
    if norm == 0:
        return Cell(name, State.ZERO)
    return Cell(name, State.NORM, norm, max(0.0, 1 + math.log10(norm / largest) / _DECADES))
