"""Open a file that must be a regular one, without waiting for a pipe or a device."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from inkling_runtime.errors import InklingError


def open_regular(path: Path) -> BinaryIO:
    """Return a file opened for reading.

    Raises:
        InklingError: it is a folder, a pipe or a device.
        OSError: it cannot be opened.
    """
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise InklingError(f"`{path}` is not a regular file")


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
