"""The picture as SVG: one rectangle for each cell, its norm as a tooltip."""

from html import escape

from inkling_cli.render.heat import make_heat
from inkling_cli.render.plot.canvas import Box, Canvas, Label, make_canvas
from inkling_cli.render.plot.colours import format_colour
from inkling_runtime.adapter.values import AdapterValues


def svg_bytes(values: AdapterValues) -> bytes:
    """Return the picture as a file."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{format_svg(values)}\n'.encode()


def format_svg(values: AdapterValues) -> str:
    """Return the `svg` element."""
    canvas = make_canvas(make_heat(values))
    return "\n".join([_head(canvas), *map(_rect, canvas.boxes), *map(_text, canvas.labels)]) + (
        "\n</svg>"
    )


def _head(canvas: Canvas) -> str:
    size = f'width="{canvas.width}" height="{canvas.height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
        f'viewBox="0 0 {canvas.width} {canvas.height}" font-family="monospace" font-size="12">\n'
        f'<rect {size} fill="#ffffff"/>'
    )


def _rect(box: Box) -> str:
    head = (
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" '
        f'fill="{format_colour(box.colour)}"'
    )
    return f"{head}><title>{escape(box.title)}</title></rect>" if box.title else f"{head}/>"


def _text(label: Label) -> str:
    anchor = ' text-anchor="end"' if label.is_right else ""
    return f'<text x="{label.x}" y="{label.y + 4}"{anchor}>{escape(label.text)}</text>'
