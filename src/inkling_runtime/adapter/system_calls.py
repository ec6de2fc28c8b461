"""System calls of Linux that Python's `os` lacks. Elsewhere each is refused with ENOSYS."""

import ctypes
import errno
import os
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_int64, c_uint
from functools import cache
from pathlib import Path
from typing import Any

_AT_FDCWD = -100


def fallocate(descriptor: int, mode: int, start: int, num_bytes: int) -> None:
    """Take room for a part of a file, insert it or remove it, as `mode` says.

    Raises:
        OSError: the file system refuses.
    """
    system_call("fallocate", c_int, c_int, c_int64, c_int64)(descriptor, mode, start, num_bytes)


def sync_file_range(descriptor: int, start: int, num_bytes: int, flags: int) -> None:
    """Begin to flush a part of a file, or wait until it is flushed, as `flags` say.

    Raises:
        OSError: the file system refuses, or the disk did not take some of the part.
    """
    call = system_call("sync_file_range", c_int, c_int64, c_int64, c_uint)
    call(descriptor, start, num_bytes, flags)


def rename_with(source: Path, target: Path, flags: int) -> None:
    """Rename in one step, in the way that `flags` say: `renameat2`.

    Raises:
        OSError: the file system refuses.
    """
    call = system_call("renameat2", c_int, c_char_p, c_int, c_char_p, c_uint)
    call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags)


@cache
def system_call(name: str, *types: Any) -> Callable[..., None]:
    """Return a function that makes a call and raises OSError where it is refused.

    Args:
        name: of the call.
        types: of its arguments, as `ctypes` has them.
    """
    try:
        found = ctypes.CDLL(None, use_errno=True)[name]
    except (AttributeError, OSError):
        return _refuse
    found.argtypes = types

    def call(*arguments: int | bytes) -> None:
        if found(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return call


def _refuse(*arguments: int | bytes) -> None:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
