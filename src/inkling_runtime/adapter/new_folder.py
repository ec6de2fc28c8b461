"""A folder that is absent or whole: written beside its place, flushed, renamed."""

import errno
import glob
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from inkling_runtime.errors import InklingError


def require_new(out: Path, overwrite: bool, marker: str) -> None:
    """Require that a folder may be made at `out`.

    Args:
        out: the folder.
        overwrite: whether an existing one may be replaced.
        marker: a file that a folder must hold to be replaced, so that a slip of the pen never
            removes a folder of another kind.

    Raises:
        InklingError: it is a file, a folder that may not be replaced, or lies in a folder that
            does not exist.
    """
    try:
        _require_free(out, overwrite, marker)
    except OSError as error:
        raise InklingError(f"`{out}` cannot be written: {error.strerror or error}") from error


def _require_free(out: Path, overwrite: bool, marker: str) -> None:
    if out.is_symlink():
        raise InklingError(f"`{out}` is a link, expected a folder to be made")
    if out.exists() and not out.is_dir():
        raise InklingError(f"`{out}` is a file, expected a folder to be made")
    if out.exists() and not overwrite:
        raise InklingError(f"`{out}` exists", "pass `--overwrite` to replace it")
    if out.exists() and not (out / marker).exists() and any(out.iterdir()):
        raise InklingError(
            f"`{out}` holds no `{marker}`, so it is not replaced", "remove it, or choose another"
        )
    if not out.absolute().parent.is_dir():
        raise InklingError(f"`{out.parent}` does not exist", "make the folder first")


@contextmanager
def new_folder(out: Path, overwrite: bool) -> Iterator[Path]:
    """Yield a temporary sibling of `out` that becomes `out` when the block ends well.

    The sibling is removed on any exception, Ctrl-C included; siblings that a killed process left
    are removed first.
    """
    out = out.absolute()
    _remove_leftovers(out, "tmp")
    folder = out.with_name(f".{out.name}.tmp-{os.getpid()}")
    try:
        folder.mkdir()
        yield folder
        _sync_folder(folder)
        _rename(folder, out, overwrite)
        _remove_leftovers(out, "old")
        _sync_folder(out.parent)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise InklingError(f"the disk is full, `{out}` was not written") from error
        raise InklingError(f"`{out}` cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _rename(folder: Path, out: Path, overwrite: bool) -> None:
    if not (overwrite and out.exists()):
        folder.rename(out)
        return
    old = out.with_name(f".{out.name}.old-{os.getpid()}")
    out.rename(old)
    try:
        folder.rename(out)
    except BaseException:
        old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _remove_leftovers(out: Path, kind: str) -> None:
    """Remove siblings of processes that are no longer there.

    `tmp` are parts of a result; `old` is what a process that was killed in the exchange had moved
    away, so it must stay until a new folder is in its place.
    """
    for folder in out.parent.glob(glob.escape(f".{out.name}.{kind}-") + "*"):
        pid = folder.name.rpartition("-")[2]
        if pid.isdecimal() and not _is_running(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(pid: int) -> bool:
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
