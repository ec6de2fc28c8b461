"""Colours of cells. Darkness alone tells norms apart, so that a grey print says the same."""

from inkling_cli.render.heat import Cell, State

Colour = tuple[int, int, int]

_LIGHT: Colour = (222, 235, 247)
_DARK: Colour = (8, 48, 107)
MARKS: dict[State, Colour] = {
    State.ZERO: (245, 245, 245),
    State.NOT_FINITE: (214, 39, 40),
    State.NOT_COMPUTED: (255, 187, 120),
}
"""Cells without a norm."""


def colour_of(cell: Cell) -> Colour:
    """Return the colour of a cell."""
    return MARKS[cell.state] if cell.state is not State.NORM else shade(cell.darkness)


def shade(darkness: float) -> Colour:
    """Return the colour of a darkness from 0 to 1."""
    red, green, blue = (
        round(light + (dark - light) * darkness) for light, dark in zip(_LIGHT, _DARK, strict=True)
    )
    return red, green, blue


def format_colour(colour: Colour) -> str:
    """Return a colour as SVG and HTML write it."""
    return f"#{colour[0]:02x}{colour[1]:02x}{colour[2]:02x}"
