"""Writes a corrected launch over its file: all of it or nothing, its owner and mode kept.

The trap: a file is replaced by another of its name, so whoever holds it by another name (a hard
link) would keep the old text; such a file is refused.
"""

import contextlib
import os
import tempfile
from pathlib import Path

from inkling_cli.checks.launch.read import LaunchSource
from inkling_runtime.errors import InklingError


def require_writable(source: LaunchSource) -> None:
    """Raise unless a source is a file that can be replaced.

    Raises:
        InklingError: it is a command, standard input or a pipe, or the file cannot be written.
    """
    if source.path is None:
        raise InklingError(
            f"`--write` changes a file, and {source.name} is none",
            "`--fix` prints the corrected launch",
        )
    if not source.path.is_file():
        raise InklingError(
            f"`{source.path}` is no regular file, expected one with `--write`",
            "`--fix` prints the corrected launch",
        )
    if not os.access(source.path, os.W_OK):
        raise InklingError(f"`{source.path}` cannot be written")
    if (names := source.path.stat().st_nlink) > 1:
        raise InklingError(
            f"`{source.path}` has {names} names (hard links), expected one with `--write`",
            "`--fix` prints the corrected launch",
        )


def write_source(source: LaunchSource, text: str) -> None:
    """Replace the file of a source by a text; nothing happens where it is the same.

    Raises:
        InklingError: the file cannot be replaced, or has changed since it was read; it is then as
            it was.
    """
    if source.path is None or text == source.text:
        return
    target = source.path.resolve()
    name = ""
    try:
        if target.read_bytes() != (source.prefix + source.text).encode():
            raise InklingError(
                f"`{source.path}` has changed since it was read, expected it as it was",
                "run the command again",
            )
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            file.write((source.prefix + text).encode())
            file.flush()
            os.fsync(file.fileno())
        state = target.stat()
        with contextlib.suppress(PermissionError):
            os.chown(name, state.st_uid, state.st_gid)
        Path(name).chmod(state.st_mode & 0o7777)
        Path(name).replace(target)
    except OSError as error:
        raise InklingError(f"`{source.path}` cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            Path(name).unlink() if name else None
