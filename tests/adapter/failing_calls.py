"""System calls of which one fails: the n-th, with any exception, whichever thread makes it.

Stands in for the kernel, never for our own functions: what Python's `os`, `io`, `fcntl` and
`ctypes` offer is wrapped.
"""

import ctypes
import fcntl
import io
import os
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

import pytest

from inkling_runtime.adapter.system_calls import system_call

_OS_CALLS = (
    "fstat",
    "fsync",
    "lstat",
    "mkdir",
    "open",
    "posix_fadvise",
    "preadv",
    "pwrite",
    "rename",
    "rmdir",
    "scandir",
    "stat",
    "statvfs",
    "unlink",
)
REMOVING = ("fstat", "lstat", "open", "rmdir", "scandir", "stat", "unlink")
"""The calls that removing a folder makes."""


class FailingCalls:
    """Wraps the system calls that writing a folder makes, and counts them.

    Attributes:
        failed: the name of the call that failed, None while all went well.
    """

    def __init__(self, fails_at: int, error: BaseException, *, is_linux: bool = True) -> None:
        self.fails_at, self.error, self.is_linux = fails_at, error, is_linux
        self.failed: str | None = None
        self._count, self._lock = 0, Lock()
        self._library = ctypes.CDLL(None, use_errno=True)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Wrap the calls; what `ctypes` found before is forgotten, as it must be afterwards."""
        for name in _OS_CALLS:
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))
        monkeypatch.setattr(fcntl, "flock", self._wrapped("flock", fcntl.flock))
        monkeypatch.setattr(io, "open", self._opening(io.open))
        monkeypatch.setattr(ctypes, "CDLL", lambda *args, **kwargs: self)
        system_call.cache_clear()

    def step(self, name: str) -> None:
        """Count a call, and fail if it is the one."""
        with self._lock:
            self._count += 1
            if self._count != self.fails_at:
                return
            self.failed = name
        raise self.error

    def __getitem__(self, name: str) -> "_LinuxCall":
        """Return a function of the C library, as `ctypes` does."""
        if not self.is_linux:
            raise AttributeError(name)
        return _LinuxCall(name, self._library[name], self)

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.step(name)
            return real(*args, **kwargs)

        return call

    def _opening(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            self.step("open a file")
            file = real(path, mode, *args, **kwargs)
            return _File(file, self) if mode == "w" else file

        return call


class _LinuxCall:
    """A function of the C library, which says by -1 and `errno` that it fails."""

    def __init__(self, name: str, real: Any, calls: FailingCalls) -> None:
        self.name, self.real, self.calls = name, real, calls
        self.argtypes: Any = None

    def __call__(self, *args: Any) -> int:
        try:
            self.calls.step(self.name)
        except OSError as error:
            ctypes.set_errno(error.errno or 0)
            return -1
        self.real.argtypes = self.argtypes
        return int(self.real(*args))


class _File:
    """A text file whose writes may fail."""

    def __init__(self, file: Any, calls: FailingCalls) -> None:
        self.file, self.calls = file, calls

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.calls.step("write")
            self.file.write(line)

    def flush(self) -> None:
        self.calls.step("flush")
        self.file.flush()

    def fileno(self) -> int:
        return int(self.file.fileno())

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *args: object) -> None:
        self.file.close()
