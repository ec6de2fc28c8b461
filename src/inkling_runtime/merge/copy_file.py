"""A copy of a file at the speed of the disk, flushed; on some file systems no byte is moved."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from inkling_runtime.adapter.flushed_file import write_all
from inkling_runtime.adapter.regular_file import open_regular
from inkling_runtime.errors import InklingError

_RUN_BYTES = 64 << 20
"""What the kernel copies in one call."""
_BUFFER_BYTES = 8 << 20

_NOT_HERE = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)
"""What `copy_file_range` answers where a file system does not have it."""


def copy_file(source: Path, out: Path, progress: Callable[[int], None]) -> None:
    """Copy the contents of a file; links are followed, and the result is no link.

    Where the file system can share blocks between files, the kernel does that.

    Raises:
        InklingError: the source is no regular file, cannot be opened or became shorter meanwhile.
        OSError: `out` cannot be written.
    """
    copy = _copy_in_kernel if hasattr(os, "copy_file_range") else _copy_through_buffer
    with _open(source) as reader, out.open("xb", buffering=0) as writer:
        here, there = reader.fileno(), writer.fileno()
        size, done = os.fstat(here).st_size, 0
        while done < size:
            try:
                count = copy(here, there, done, min(_RUN_BYTES, size - done))
            except OSError as error:
                if copy is _copy_through_buffer or error.errno not in _NOT_HERE:
                    raise
                copy = _copy_through_buffer
                continue
            if count == 0:
                raise InklingError(f"`{source}` ended while it was copied")
            done += count
            progress(count)
            _forget(here, done)
        os.fsync(there)
        _forget(there, done)


def _open(source: Path) -> BinaryIO:
    try:
        return open_regular(source)
    except OSError as error:
        raise InklingError(f"`{source}` cannot be read: {error.strerror or error}") from error


def _copy_in_kernel(here: int, there: int, start: int, size: int) -> int:
    return os.copy_file_range(here, there, size, start, start)


def _copy_through_buffer(here: int, there: int, start: int, size: int) -> int:
    data = os.pread(here, min(size, _BUFFER_BYTES), start)
    write_all(there, memoryview(data), start)
    return len(data)


def _forget(descriptor: int, size: int) -> None:
    """Let the operating system drop what was copied, so that a large copy does not fill memory."""
    with suppress(AttributeError, OSError):
        os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_DONTNEED)
