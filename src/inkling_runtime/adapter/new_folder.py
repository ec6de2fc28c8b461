"""A folder that is absent or whole: written beside its place, flushed, renamed."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inkling_runtime.adapter.disk_errors import MAKE_ROOM, disk_error
from inkling_runtime.adapter.flushed_folder import flush_folder
from inkling_runtime.adapter.interrupts import interrupts_held
from inkling_runtime.adapter.renames import rename_new, replace_folder
from inkling_runtime.adapter.sibling_folder import (
    aside_name,
    locked_sibling,
    remove_folder,
    remove_moved_away,
)
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
        if out.is_symlink():
            raise InklingError(f"`{out}` is a link, expected a folder to be made")
        if out.exists():
            _require_replaceable(out, overwrite, marker)
        elif not out.absolute().parent.is_dir():
            raise InklingError(f"`{out.parent}` does not exist", "make the folder first")
    except OSError as error:
        raise disk_error(error, out) from error


def _require_replaceable(out: Path, overwrite: bool, marker: str) -> None:
    if not out.is_dir():
        raise InklingError(f"`{out}` is a file, expected a folder to be made")
    if not overwrite:
        raise InklingError(f"`{out}` exists", "pass `--overwrite` to replace it")
    if not (out / marker).exists() and any(out.iterdir()):
        raise InklingError(
            f"`{out}` holds no `{marker}`, so it is not replaced", "remove it, or choose another"
        )
    if out.is_mount():
        raise InklingError(
            f"`{out}` is a mount point, expected a folder that can be replaced",
            "choose a folder inside it",
        )


@contextmanager
def new_folder(out: Path, overwrite: bool, nbytes: int = 0) -> Iterator[Path]:
    """Yield a temporary sibling of `out` that becomes `out` when the block ends well.

    The sibling is removed on any exception, Ctrl-C included; siblings that a killed process left
    are removed first.

    Args:
        out: the folder, as `require_new` accepts it.
        overwrite: whether one that is there is replaced.
        nbytes: what will be written, 0 where that is not known.

    Raises:
        InklingError: there is no room for it, the operating system refuses, or another process
            is writing `out` or made it meanwhile.
    """
    try:
        place = _place_of(out)
        _require_room(place.parent, out, nbytes)
        with locked_sibling(place, out) as folder, _opened(place, overwrite) as old:
            yield folder
            flush_folder(folder)
            with interrupts_held():
                _put_in_place(folder, place, out, old)
    except OSError as error:
        raise disk_error(error, out, nbytes) from error


def _place_of(out: Path) -> Path:
    """Return the absolute path of a folder; none of its parents is a link."""
    return out.resolve() if out.name in ("", "..") else out.parent.resolve() / out.name


def _require_room(parent: Path, out: Path, nbytes: int) -> None:
    free = shutil.disk_usage(parent).free
    if nbytes > free:
        raise InklingError(
            f"`{out}` needs {nbytes:,} bytes, the disk has {free:,} bytes free", MAKE_ROOM
        )


@contextmanager
def _opened(place: Path, overwrite: bool) -> Iterator[int | None]:
    """Yield a descriptor of the folder to be replaced, None where there is none."""
    if not (overwrite and place.exists()):
        yield None
        return
    descriptor = os.open(place, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _put_in_place(folder: Path, place: Path, out: Path, old: int | None) -> None:
    """Rename a finished folder, and remove what it replaces once the new name is on the disk."""
    if old is None or not _is_at(place, old):
        rename_new(folder, place)
        _confirm(place, out)
    else:
        moved = replace_folder(folder, place, aside_name(place))
        try:
            _confirm(place, out)
        finally:
            remove_folder(moved)
    remove_moved_away(place)


def _is_at(place: Path, descriptor: int) -> bool:
    """Return whether a name is still that of an open folder."""
    try:
        return os.path.samestat(os.lstat(place), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _confirm(place: Path, out: Path) -> None:
    """Flush the new name of a folder."""
    try:
        flush_folder(place.parent)
    except OSError as error:
        raise InklingError(
            f"`{out}` is whole, but the disk does not confirm its name: {error.strerror}",
            "look whether the disk is sound",
        ) from error
