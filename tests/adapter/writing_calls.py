"""The system calls that writing a folder makes, of which one breaks."""

import fcntl
import io
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from breaking_calls import BreakingCalls

REMOVING = ("fstat", "lstat", "open", "rmdir", "scandir", "stat", "unlink")
"""The calls that removing a folder makes."""


class WritingCalls(BreakingCalls):
    """Also wraps locks, and text files that are opened to be written."""

    os_calls = (
        *REMOVING,
        "fsync",
        "mkdir",
        "posix_fadvise",
        "preadv",
        "pwrite",
        "rename",
        "statvfs",
    )

    def patch(self, patched: pytest.MonkeyPatch) -> None:
        super().patch(patched)
        patched.setattr(fcntl, "flock", self.wrapped("flock", fcntl.flock))
        patched.setattr(io, "open", self._opening(io.open))

    def _opening(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            self.step("open a file")
            file = real(path, mode, *args, **kwargs)
            return _File(file, self) if mode == "w" else file

        return call


class _File:
    """A text file whose writes may break."""

    def __init__(self, file: Any, calls: WritingCalls) -> None:
        self.file, self.calls = file, calls

    def writelines(self, parts: Iterable[str]) -> None:
        for part in parts:
            self.calls.step("write")
            self.file.write(part)

    def flush(self) -> None:
        self.calls.step("flush")
        self.file.flush()

    def fileno(self) -> int:
        return int(self.file.fileno())

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *args: object) -> None:
        self.file.close()
