"""What the operating system says of a folder that cannot be written, as an error for people."""

import errno
import resource
from pathlib import Path

from inkling_runtime.errors import InklingError

MAKE_ROOM = "make room, or choose a folder on another disk"

_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}


def disk_error(error: OSError, out: Path, nbytes: int = 0) -> InklingError:
    """Return the error that says why a folder was not written.

    Args:
        error: of the operating system.
        out: the folder.
        nbytes: what it needs; 0 where that is not known.
    """
    if full := said_of_full(error):
        needs = f"; it needs {nbytes:,} bytes" if nbytes else ""
        return InklingError(f"{full}, `{out}` was not written{needs}", MAKE_ROOM)
    if error.errno == errno.EFBIG:
        return _too_large(out)
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
        return InklingError(
            f"`{out}` was made by another process meanwhile, expected nothing there",
            "choose another folder, or pass `--overwrite` to replace it",
        )
    return InklingError(f"`{out}` cannot be written: {error.strerror or error}")


def said_of_full(error: OSError) -> str:
    """Return what is said where there is no room on a disk; nothing where that is not why."""
    return _FULL.get(error.errno or 0, "")


def _too_large(out: Path) -> InklingError:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit == resource.RLIM_INFINITY:
        return InklingError(
            f"`{out}` needs a file that is larger than its file system takes",
            "choose a folder on another disk",
        )
    return InklingError(
        f"`{out}` needs a file that is larger than {limit:,} bytes, the limit of this process",
        "run `ulimit -f unlimited` first",
    )
