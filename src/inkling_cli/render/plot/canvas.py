"""Where everything of a picture lies, in units that are pixels in each format."""

from collections.abc import Iterator
from dataclasses import dataclass

from inkling_cli.render.heat import Heat, State
from inkling_cli.render.plot.colours import MARKS, Colour, colour_of, shade

CELL = 14
_LEFT = 96
_TOP = 48
_SHADES = 5
TITLE = "norm of the delta s·B·A by layer"


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle and, where it stands for something, its words."""

    x: int
    y: int
    width: int
    height: int
    colour: Colour
    title: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """A text: where its left end (or its right end) and its middle line are."""

    x: int
    y: int
    text: str
    is_right: bool = False


@dataclass(frozen=True, slots=True)
class Canvas:
    """A picture as boxes and labels."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    labels: tuple[Label, ...]


def make_canvas(heat: Heat) -> Canvas:
    """Return the picture of norms: title, numbers of layers, cells, legend."""
    height = _TOP + CELL * len(heat.rows) + 3 * CELL
    legend = list(_legend(heat, _TOP + CELL * len(heat.rows) + CELL))
    width = max(
        _LEFT + CELL * len(heat.layers) + CELL,
        *(label.x + 9 * len(label.text) for _, label in legend),
        _LEFT + 9 * len(TITLE),
    )
    labels = [Label(_LEFT, CELL, TITLE)]
    labels += [
        Label(_LEFT + CELL * index, _TOP - CELL // 2, str(layer))
        for index, layer in enumerate(heat.layers)
        if index % 10 == 0
    ]
    labels += [
        Label(_LEFT - 6, _TOP + CELL * index + CELL // 2, label, is_right=True)
        for index, (label, _) in enumerate(heat.rows)
    ]
    boxes = (*_cells(heat), *(box for box, _ in legend))
    return Canvas(width, height, boxes, (*labels, *(label for _, label in legend)))


def _cells(heat: Heat) -> Iterator[Box]:
    for row, (_, cells) in enumerate(heat.rows):
        for column, cell in enumerate(cells):
            if cell is not None:
                x, y = _LEFT + CELL * column, _TOP + CELL * row
                yield Box(x, y, CELL - 1, CELL - 1, colour_of(cell), cell.title)


def _legend(heat: Heat, y: int) -> Iterator[tuple[Box, Label]]:
    """Yield what each colour stands for, one beside the other."""
    entries: list[tuple[Colour, str]] = []
    if heat.largest:
        steps = [index / (_SHADES - 1) for index in range(_SHADES)]
        entries += [(shade(step), f"{heat.norm_at(step):.3g}") for step in steps]
    states = {cell.state for _, row in heat.rows for cell in row if cell is not None}
    entries += [(MARKS[state], state.value) for state in State if state in states & set(MARKS)]
    x = _LEFT
    for colour, text in entries:
        yield Box(x, y, CELL - 1, CELL - 1, colour), Label(x + CELL + 3, y + CELL // 2, text)
        x += CELL + 3 + 9 * len(text) + CELL
