"""Bytes inserted and removed at the start of a file, those behind them not copied.

Linux file systems with extents (ext4, xfs) renumber the blocks of a file, whatever its size; all
others refuse. A power cut in the middle leaves a file of the longer size: its first blocks stand
where the shorter file has them, its last where the longer one has them, a hole between.
"""

import errno
import os

from inkling_runtime.adapter.system_calls import fallocate

_COLLAPSE_RANGE, _INSERT_RANGE = 0x08, 0x20
_CANNOT = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

BLOCK_BYTES = 64 * 1024
"""Room comes in multiples of it: no file system in use has larger blocks."""


class RoomError(OSError):
    """The file system does not insert or remove bytes at the start of a file."""


def insert_room(descriptor: int, num_bytes: int) -> None:
    """Insert zeros at the start of a file.

    Raises:
        RoomError: the file system cannot; the file is as it was.
        OSError: any other reason.
    """
    _move_blocks(descriptor, _INSERT_RANGE, 0, num_bytes)


def remove_room(descriptor: int, num_bytes: int) -> None:
    """Remove bytes at the start of a file.

    Raises:
        RoomError: the file system cannot; the file is as it was.
        OSError: any other reason.
    """
    _move_blocks(descriptor, _COLLAPSE_RANGE, 0, num_bytes)


def close_gap(descriptor: int, num_bytes: int) -> bool:
    """Remove the hole that a power cut left between moved and unmoved blocks.

    Returns:
        Whether there was exactly such a hole; if not, nothing is changed.
    """
    size = os.fstat(descriptor).st_size
    start = os.lseek(descriptor, 0, os.SEEK_HOLE)
    try:
        end = os.lseek(descriptor, start, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        end = size
    if end == size and 0 <= start - (size - num_bytes) < BLOCK_BYTES:
        os.ftruncate(descriptor, size - num_bytes)
        return True
    if end - start != num_bytes:
        return False
    _move_blocks(descriptor, _COLLAPSE_RANGE, start, num_bytes)
    return True


def _move_blocks(descriptor: int, mode: int, start: int, num_bytes: int) -> None:
    try:
        fallocate(descriptor, mode, start, num_bytes)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        what = "insert" if mode == _INSERT_RANGE else "remove"
        where = "at the start of a file, as ext4 and xfs on Linux can"
        raise RoomError(error.errno, f"its file system cannot {what} bytes {where}") from error
