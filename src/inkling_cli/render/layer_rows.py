"""The rows of every picture that has a column for each layer: kinds of modules in short words."""

from inkling_runtime.adapter.sites import SiteKind

LAYER_ROWS: tuple[tuple[str, SiteKind], ...] = (
    ("q", SiteKind.Q),
    ("k", SiteKind.K),
    ("v", SiteKind.V),
    ("r", SiteKind.R),
    ("o", SiteKind.O),
    ("dense gate", SiteKind.DENSE_GATE),
    ("dense up", SiteKind.DENSE_UP),
    ("dense down", SiteKind.DENSE_DOWN),
    ("routed w1", SiteKind.ROUTED_GATE),
    ("routed w3", SiteKind.ROUTED_UP),
    ("routed w2", SiteKind.ROUTED_DOWN),
    ("shared w1", SiteKind.SHARED_GATE),
    ("shared w3", SiteKind.SHARED_UP),
    ("shared w2", SiteKind.SHARED_DOWN),
)

_WIDTH = 12


def row_label(label: str) -> str:
    """Return the beginning of a row, as wide as that of all others."""
    return f"{label:<{_WIDTH}}"


def layer_ruler(layers: int) -> str:
    """Return the line above the columns: the number of every tenth layer."""
    return row_label("") + "".join(f"{layer:<10}" for layer in range(0, layers, 10)).rstrip()
