"""Rows of text in aligned columns."""

from collections.abc import Iterable, Sequence


def align_rows(rows: Sequence[Sequence[str]], numbers: Iterable[int]) -> list[str]:
    """Return rows as aligned lines, the columns of numbers to the right, the last one loose."""
    right = set(numbers)
    columns = range(len(rows[0])) if rows else ()
    widths = [max(len(row[column]) for row in rows) for column in columns]
    return [
        "  ".join(
            row[column].rjust(widths[column]) if column in right else row[column].ljust(width)
            for column, width in enumerate(widths)
        ).rstrip()
        for row in rows
    ]
