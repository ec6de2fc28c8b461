"""Folders beside a place, for what is not finished: made, locked, told from abandoned ones.

A lock lasts as long as its process. Numbers of processes tell only where a file system has no
locks: containers that share a disk count alike.
"""

import fcntl
import glob
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from inkling_runtime.adapter.interrupts import interrupts_held
from inkling_runtime.errors import InklingError


@contextmanager
def locked_sibling(place: Path, out: Path) -> Iterator[Path]:
    """Yield a new folder beside a place, which no other run takes for abandoned.

    What has its name at the end is removed; what killed processes left is removed before.

    Args:
        place: an absolute path.
        out: the same as messages call it.

    Raises:
        InklingError: there is one that is being written.
        OSError: it cannot be made.
    """
    _remove_abandoned(place, out)
    folder = place.with_name(f".{place.name}.tmp-{os.getpid()}")
    descriptor = _make_locked(folder, out)
    try:
        yield folder
    finally:
        with interrupts_held():
            try:
                remove_folder(folder)
            finally:
                os.close(descriptor)


def _make_locked(folder: Path, out: Path) -> int:
    """Make a folder and return a descriptor that holds its lock."""
    while True:
        try:
            os.mkdir(folder)  # noqa: PTH102
        except FileExistsError as error:
            raise _being_written(out) from error
        try:
            descriptor = _locked(folder)
        except BaseException:
            remove_folder(folder)
            raise
        if descriptor is not None:
            return descriptor


def _locked(folder: Path) -> int | None:
    """Return a descriptor that holds a folder's lock.

    None if another run found the folder before it was locked, and removed it.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if folder.exists():
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _being_written(out: Path) -> InklingError:
    return InklingError(
        f"`{out}` is being written by another process",
        "wait until it has ended, or choose another folder",
    )


def remove_folder(folder: Path) -> None:
    """Remove a folder as far as that can be done; the next run removes the rest."""
    with suppress(OSError):  # of some calls `rmtree` does not ignore the errors
        shutil.rmtree(folder, ignore_errors=True)


def aside_name(place: Path) -> Path:
    """Return a name beside a place for what is moved away from it."""
    return place.with_name(f".{place.name}.old-{os.getpid()}")


def remove_moved_away(place: Path) -> None:
    """Remove what processes that are no longer there had moved away from a place.

    It may be all that there was, so this is for when something new is there.
    """
    with suppress(OSError):
        for folder, pid in _siblings(place, "old"):
            if not _is_running(pid):
                remove_folder(folder)


def _remove_abandoned(place: Path, out: Path) -> None:
    """Remove parts of results whose processes are no longer there; require that no other is."""
    for folder, pid in _siblings(place, "tmp"):
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_folder(folder)
        except BlockingIOError as error:
            raise _being_written(out) from error
        except OSError:
            if not _is_running(pid):
                remove_folder(folder)
        finally:
            os.close(descriptor)


def _siblings(place: Path, kind: str) -> Iterator[tuple[Path, int]]:
    """Yield the folders that processes made beside a place, and their numbers."""
    for folder in place.parent.glob(glob.escape(f".{place.name}.{kind}-") + "*"):
        pid = folder.name.rpartition("-")[2]
        if pid.isascii() and pid.isdecimal():
            yield folder, int(pid)


def _is_running(pid: int) -> bool:
    """Return whether there is another process of a number."""
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
