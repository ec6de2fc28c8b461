"""Values from strangers' files as they stand in a message: short, however large they are."""

import reprlib


def shown_text(text: str, limit: int = 200) -> str:
    """Return a text, cut behind its first characters if it is long."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def shown_value(value: object) -> str:
    """Return what `repr` says of a value, long and deep parts left out."""
    return _SHORT.repr(value)


def _short() -> reprlib.Repr:
    short = reprlib.Repr()
    short.maxlevel = 3
    short.maxstring = short.maxlong = short.maxother = 80
    return short


_SHORT = _short()
