"""Small files that are replaced whole and survive a power cut.

The temporary sibling has one fixed name, so that the next run writes over what a killed one left.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from inkling_runtime.adapter.flushed_file import write_all
from inkling_runtime.adapter.flushed_folder import flush_folder


def replace_file(path: Path, data: bytes, like: Path) -> None:
    """Write a file whole or not at all, with the mode and owner of `like`."""
    beside = _beside(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    try:
        descriptor = os.open(beside, flags, 0o600)
        try:
            _copy_mode(like, descriptor)
            write_all(descriptor, memoryview(data), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def remove_file(path: Path) -> None:
    """Remove a file, and what a killed process left of a new one beside it."""
    remove_leftover(path)
    path.unlink(missing_ok=True)
    flush_folder(path.parent)


def remove_leftover(path: Path) -> None:
    """Remove what a killed process left of a new file beside `path`."""
    _beside(path).unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


def _copy_mode(like: Path, descriptor: int) -> None:
    status = like.stat()
    with suppress(PermissionError):
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
