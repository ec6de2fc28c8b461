"""The names in a folder, made durable."""

import errno
import os
from pathlib import Path

_NOT_HERE = (errno.EINVAL, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM, errno.EBADF)
"""What a file system answers that does not flush folders, or lets nobody look into one."""


def flush_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder, where the file system can do that.

    Raises:
        OSError: the disk did not take them.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
