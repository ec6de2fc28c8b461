"""The weights file of an adapter, opened to be changed where it lies, by one process alone."""

import fcntl
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from inkling_runtime.adapter.adapter_weights import WEIGHTS_NAME
from inkling_runtime.adapter.flushed_file import write_all
from inkling_runtime.adapter.json_file import MAX_JSON_BYTES, require_json_size
from inkling_runtime.adapter.lora_config import CONFIG_NAME
from inkling_runtime.adapter.regular_file import open_regular
from inkling_runtime.errors import InklingError, format_count


def other_way(folder: Path, dialect: str) -> str:
    """Return the hint for what cannot be done in place."""
    command = f"inkling convert-adapter {shlex.quote(str(folder))} --to {dialect} -o OUT"
    return f"`{command}` writes a new folder and leaves this one as it is"


@dataclass(frozen=True, slots=True)
class OpenWeights:
    """An open and locked weights file. Places are bytes from the start of the file."""

    folder: Path
    descriptor: int

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / WEIGHTS_NAME

    @property
    def config_path(self) -> Path:
        """The config beside it."""
        return self.folder / CONFIG_NAME

    def size(self) -> int:
        """Return the size of the file as it is now."""
        return os.fstat(self.descriptor).st_size

    def read_config(self) -> bytes:
        """Return the bytes of the config.

        Raises:
            InklingError: it is no regular file, or larger than any config.
            OSError: it cannot be read.
        """
        with open_regular(self.config_path) as file:
            data = file.read(MAX_JSON_BYTES + 1)
        require_json_size(len(data), f"`{self.config_path}`")
        return data

    def header_length(self) -> int:
        """Return what the first eight bytes of the file say."""
        return int.from_bytes(self.read(0, 8), "little")

    def read(self, start: int, num_bytes: int) -> bytes:
        """Return bytes, fewer where the file ends."""
        parts = []
        while num_bytes and (part := os.pread(self.descriptor, num_bytes, start)):
            parts.append(part)
            start, num_bytes = start + len(part), num_bytes - len(part)
        return b"".join(parts)

    def write(self, start: int, data: bytes) -> None:
        """Write bytes over those that are there."""
        write_all(self.descriptor, memoryview(data), start)

    def sync(self) -> None:
        """Wait until the disk has all that was written."""
        os.fsync(self.descriptor)


@contextmanager
def open_for_change(folder: Path, hint: str | None = None) -> Iterator[OpenWeights]:
    """Yield the weights file of a folder, which nobody else may change meanwhile.

    Args:
        folder: of the adapter.
        hint: what to do where its files may not be changed.

    Raises:
        InklingError: it or the config is missing, shared with others through a link, read-only,
            or being changed by another process.
    """
    path = folder / WEIGHTS_NAME
    for file in (path, folder / CONFIG_NAME):
        _require_own(file, hint)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError as error:
        raise InklingError(
            f"`{path}` cannot be changed: {error.strerror or error}", hint
        ) from error
    try:
        _lock(descriptor, path)
        yield OpenWeights(folder, descriptor)
    except OSError as error:
        raise InklingError(
            f"`{folder}` cannot be read or changed: {error.strerror or error}"
        ) from error
    finally:
        os.close(descriptor)


def _require_own(path: Path, hint: str | None) -> None:
    """Require that the bytes of a file are this folder's alone and may be changed."""
    try:
        status = path.lstat()
    except OSError as error:
        raise InklingError(f"`{path}` cannot be read: {error.strerror or error}") from error
    if stat.S_ISLNK(status.st_mode):
        what = f"is a link to `{path.readlink()}`, whose bytes others may use"
    elif not stat.S_ISREG(status.st_mode):
        what = "is not a regular file"
    elif status.st_nlink > 1:
        names = format_count(status.st_nlink, "name")
        what = f"has {names} (hard links), whose bytes are the same"
    elif not status.st_mode & 0o222:
        what = "is read-only"
    else:
        return
    raise InklingError(
        f"`{path}` {what}; in place, only a writable file of this folder alone is changed", hint
    )


def _lock(descriptor: int, path: Path) -> None:
    """Keep other processes of ours out, where the file system has locks."""
    with suppress(OSError):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InklingError(f"`{path}` is being changed by another process") from error
