"""Bars made of characters: of blocks where the output's encoding has them, else of ASCII."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Blocks:
    """The characters of bars.

    Attributes:
        steps: a cell filled more and more; the last is full.
        fills: cells that can be told apart, for the parts of one bar.
    """

    steps: str
    fills: str

    def bar(self, share: float, width: int) -> str:
        """Return a bar as long as a share of the width; a share above 0 is always seen."""
        steps = round(max(share, 0.0) * width * len(self.steps))
        if share > 0:
            steps = max(steps, 1)
        full, rest = divmod(steps, len(self.steps))
        return self.steps[-1] * full + (self.steps[rest - 1] if rest else "")

    def stacked(self, parts: Sequence[int], width: int) -> list[str]:
        """Return the cells of each part of one bar; a part above 0 has at least one cell."""
        total = max(sum(parts), 1)
        cells = [max(part * width // total, 1) if part > 0 else 0 for part in parts]
        for _ in range(sum(cells), width if any(parts) else 0):
            lacking = [
                part * width / total - count for part, count in zip(parts, cells, strict=True)
            ]
            cells[lacking.index(max(lacking))] += 1
        while sum(cells) > width and max(cells) > 1:
            cells[cells.index(max(cells))] -= 1
        return [fill * count for fill, count in zip(self.fills, cells, strict=False)]


UNICODE = Blocks("▏▎▍▌▋▊▉█", "█▓▒░")
ASCII = Blocks("#", "#=-.")


def blocks_for(encoding: str | None) -> Blocks:
    """Return the characters that an output of an encoding can show."""
    try:
        (UNICODE.steps + UNICODE.fills).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE
