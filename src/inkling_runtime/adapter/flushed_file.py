"""A file written at offsets that leaves neither dirty pages nor a full page cache behind."""

import errno
import os
from collections import deque
from contextlib import suppress

from inkling_runtime.adapter.system_calls import fallocate, sync_file_range

_RUN_BYTES = 8 << 20
"""Bytes that follow one another and are flushed at once: a call for each tensor would be dear."""
_RUNS_IN_FLIGHT = 4
"""Runs of each thread that may be on their way to the disk."""


def reserve(descriptor: int, size: int) -> None:
    """Take a file's room at once, where the system can, so that a full disk shows at the start.

    Raises:
        OSError: there is no room for it.
    """
    try:
        fallocate(descriptor, 0, 0, size)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise


def write_all(descriptor: int, view: memoryview, start: int) -> None:
    """Write bytes at a place of a file.

    Raises:
        OSError: the file system does not take them.
    """
    done = 0
    while done < len(view):
        count = os.pwrite(descriptor, view[done:], start + done)
        if count == 0:
            raise OSError(errno.EIO, "the file system takes no more bytes")
        done += count


class FlushedPages:
    """Pages of a file that one thread wrote: on their way to the disk, then forgotten."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._in_flight: deque[tuple[int, int]] = deque()
        self._start = 0
        self._size = 0

    def add(self, start: int, size: int) -> None:
        """Begin to flush what was written, and drop the oldest run if there are many.

        Raises:
            OSError: the disk did not take some of the file.
        """
        if start != self._start + self._size:
            self._flush()
            self._start = start
        self._size += size
        if self._size >= _RUN_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._size:
            _sync(self._descriptor, self._start, self._size, _SYNC_WRITE)
            self._in_flight.append((self._start, self._size))
        self._start, self._size = self._start + self._size, 0
        if len(self._in_flight) > _RUNS_IN_FLIGHT:
            self._drop()

    def drop_all(self) -> None:
        """Wait until all are flushed, and drop them.

        Raises:
            OSError: the disk did not take some of the file.
        """
        self._flush()
        while self._in_flight:
            self._drop()

    def _drop(self) -> None:
        start, size = self._in_flight.popleft()
        _sync(self._descriptor, start, size, _SYNC_WAIT_BEFORE | _SYNC_WRITE | _SYNC_WAIT_AFTER)
        with suppress(AttributeError, OSError):
            os.posix_fadvise(self._descriptor, start, size, os.POSIX_FADV_DONTNEED)


_SYNC_WAIT_BEFORE, _SYNC_WRITE, _SYNC_WAIT_AFTER = 1, 2, 4


def _sync(descriptor: int, start: int, size: int, flags: int) -> None:
    """Flush pages where the system can.

    Raises:
        OSError: the disk did not take some of the file. Linux says that once: `fsync` on the same
            descriptor does not repeat it.
    """
    try:
        sync_file_range(descriptor, start, size, flags)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise


_NOT_HERE = (errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP)
"""What is answered where the system cannot flush a part of a file."""
