"""System calls of Linux that Python's `os` lacks."""

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def system_call(name: str, *types: Any) -> Callable[..., None] | None:
    """Return a function that makes a call, None where the system has none of that name.

    It raises OSError where the call is refused.

    Args:
        name: of the call.
        types: of its arguments, as `ctypes` has them.
    """
    try:
        found = ctypes.CDLL(None, use_errno=True)[name]
    except (AttributeError, OSError):
        return None
    found.argtypes = types

    def call(*arguments: int | bytes) -> None:
        if found(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return call
