"""Writes a corrected launch over its file: all of it or nothing, its permissions kept."""

import contextlib
import os
import tempfile
from pathlib import Path

from inkling_cli.checks.launch.read import LaunchSource
from inkling_runtime.errors import InklingError


def require_writable(source: LaunchSource) -> None:
    """Raise unless a source is a file that can be replaced.

    Raises:
        InklingError: it is a command or standard input, or the file cannot be written.
    """
    if source.path is None:
        raise InklingError(
            f"`--write` changes a file, and {source.name} is none",
            "`--fix` prints the corrected launch",
        )
    if not os.access(source.path, os.W_OK):
        raise InklingError(f"`{source.path}` cannot be written")


def write_source(source: LaunchSource, text: str) -> None:
    """Replace the file of a source by a text; nothing happens where it is the same.

    Raises:
        InklingError: the file cannot be replaced; it is then as it was.
    """
    if source.path is None or text == source.text:
        return
    target = source.path.resolve()
    handle = -1
    name = ""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            file.write((source.prefix + text).encode())
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(target.stat().st_mode & 0o7777)
        Path(name).replace(target)
    except OSError as error:
        raise InklingError(f"`{source.path}` cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            Path(name).unlink() if name else None
