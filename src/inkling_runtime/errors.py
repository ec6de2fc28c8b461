"""The one exception that means "what was asked cannot be done".

Defects of an input that a command was asked to judge are findings (`inkling_cli.checks`),
never exceptions; anything else that is raised is a bug of ours.
"""

from collections.abc import Sequence


class InklingError(Exception):
    """A request that could not be done.

    Args:
        message: what is, then what was expected, with both values.
        hint: what to do about it, best a command.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 module`, `2 modules`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_names(names: Sequence[str], limit: int = 3) -> str:
    """Return names in backticks, the first `limit` of them, and how many more there are."""
    shown = ", ".join(f"`{name}`" for name in names[:limit])
    more = len(names) - limit
    return f"{shown} and {more} more" if more > 0 else shown
