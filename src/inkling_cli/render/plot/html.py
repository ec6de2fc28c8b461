"""The picture as a page that needs nothing from elsewhere: the SVG and the numbers as tables."""

from collections.abc import Iterable
from html import escape
from statistics import median

from inkling_cli.render.plot.canvas import TITLE
from inkling_cli.render.plot.svg import format_svg
from inkling_cli.render.values import summarise_groups
from inkling_runtime.adapter.values import AdapterValues

_STYLE = (
    "body{font-family:sans-serif;margin:2em}"
    "table{border-collapse:collapse;margin:1em 0}"
    "td,th{padding:.15em .8em;text-align:right;border-bottom:1px solid #ddd}"
    "td:first-child,th:first-child{text-align:left}"
)


def html_bytes(values: AdapterValues) -> bytes:
    """Return the page as a file."""
    groups = _table(
        ("group", "places", "share", "norm", "effective rank", "of rank"),
        (
            (
                group.group.value,
                f"{group.num_places:,}",
                f"{group.share:.2%}",
                f"{group.norm:.4g}",
                f"{median(group.effective_ranks):.2f}" if group.effective_ranks else "-",
                str(group.rank),
            )
            for group in summarise_groups(values)
        ),
    )
    layers = _table(
        ("layer", "norm"),
        (
            (str(layer) if layer >= 0 else "head", f"{norm:.4g}")
            for layer, norm in values.layer_norms().items()
        ),
    )
    places = _table(
        ("place", "norm", "effective rank", "of rank"),
        (
            (
                str(site),
                f"{delta.norm:.4g}",
                "-" if delta.effective_rank is None else f"{delta.effective_rank:.2f}",
                str(delta.rank),
            )
            for site, delta in values.sites.items()
        ),
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(TITLE)}'
        f"</title><style>{_STYLE}</style></head>\n<body>\n{format_svg(values)}\n"
        f"<p>{values.bytes_read:,} bytes of {len(values.tensors):,} tensors read.</p>\n"
        f"{groups}\n{layers}\n{places}\n</body></html>\n"
    ).encode()


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["<table>", _row("th", head), *(_row("td", row) for row in rows), "</table>"]
    return "\n".join(lines)


def _row(tag: str, cells: tuple[str, ...]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
