"""Renames that hide nothing and leave no name empty: on Linux one step, elsewhere several."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from inkling_runtime.adapter.system_calls import rename_with

_NO_REPLACE, _EXCHANGE = 1, 2
_NOT_HERE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)
"""What is answered where a file system, or the system, does not know a flag."""


def rename_new(source: Path, target: Path) -> None:
    """Give a folder a name that nothing has.

    Raises:
        FileExistsError: something has it.
        OSError: it cannot be renamed.
    """
    if _rename_at_once(source, target, _NO_REPLACE):
        return
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    os.rename(source, target)  # noqa: PTH104


def replace_folder(new: Path, target: Path, aside: Path) -> Path:
    """Put a folder in another's place and return where the other is now; on an error nothing moves.

    Args:
        new: a folder.
        target: another, whose name it gets.
        aside: a free name. Where the system cannot swap two names, the other has it in the end;
            for a moment `target` is then nothing's name, and stays so if the process is killed.

    Raises:
        OSError: they cannot be renamed.
    """
    if _rename_at_once(new, target, _EXCHANGE):
        return new
    os.rename(target, aside)  # noqa: PTH104
    try:
        os.rename(new, target)  # noqa: PTH104
    except BaseException:
        with suppress(OSError):
            rename_new(aside, target)
        raise
    return aside


def _rename_at_once(source: Path, target: Path, flag: int) -> bool:
    """Rename in one step and return True; return False where that is not possible."""
    try:
        rename_with(source, target, flag)
    except OSError as error:
        if error.errno in _NOT_HERE:
            return False
        raise
    return True
