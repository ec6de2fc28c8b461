"""System calls that break at the n-th: an error, Ctrl-C, a killed process, a power cut.

Stands in for the kernel, never for our own functions. After a death every further call breaks
too, so that no clean-up can help; a power cut also takes writes back that were not flushed.
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from inkling_runtime.adapter.system_calls import system_call

CALLS = ("open", "pwrite", "fsync", "replace", "unlink", "fchmod", "fchown", "ftruncate")

COLLAPSE_RANGE, INSERT_RANGE = 0x08, 0x20
"""Modes of `fallocate`."""


class Dead(BaseException):
    """The process is no more; nothing may catch it for good."""


class BreakingCalls:
    """Replaces the system calls that change files, and counts them.

    Args:
        breaks_at: the number of the call that breaks, from 1.
        error: what it raises; None breaks nothing.
        lost: what else a death does. `half` writes half of what the call was to write; `all`
            takes back every write that was not flushed, `early` all of them but the latest.

    Attributes:
        names: of the calls so far.
        moves: the modes and sizes of those that move blocks.
        broken: whether the call was reached.
    """

    def __init__(
        self, breaks_at: int = 0, error: BaseException | None = None, lost: str = ""
    ) -> None:
        self.breaks_at, self.error, self.lost = breaks_at, error, lost
        self.names: list[str] = []
        self.moves: list[tuple[int, int]] = []
        self.broken = False
        self._unflushed: list[tuple[int, int, bytes]] = []
        self._pread, self._pwrite = os.pread, os.pwrite
        self._library = ctypes.CDLL(None, use_errno=True)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Put the calls in the kernel's place for a while."""
        with pytest.MonkeyPatch.context() as patched, library(self):
            for name in CALLS:
                patched.setattr(os, name, self._wrapped(name, getattr(os, name)))
            yield

    def step(self, name: str) -> None:
        """Count a call, and break if it is the one."""
        self.names.append(name)
        if self.error is None:
            return
        if len(self.names) == self.breaks_at:
            self.broken = True
            if isinstance(self.error, Dead):
                self._lose()
            raise self.error
        if self.broken and isinstance(self.error, Dead):
            raise self.error

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "pwrite":
                self._note_write(real, *args)
            self.step(name)
            if name == "fsync":
                self._unflushed = [write for write in self._unflushed if write[0] != args[0]]
            return real(*args, **kwargs)

        return call

    def _note_write(self, real: Callable[..., Any], descriptor: int, data: Any, start: int) -> None:
        with suppress(OSError):
            before = self._pread(descriptor, len(data), start)
            self._unflushed.append((descriptor, start, before))
        if self.lost == "half" and len(self.names) + 1 == self.breaks_at:
            real(descriptor, data[: len(data) // 2], start)

    def __getitem__(self, name: str) -> "_Fallocate":
        """Return a function of the C library, as `ctypes` does."""
        assert name == "fallocate"
        return _Fallocate(self, self._library[name])

    def moved(self, mode: int, num_bytes: int) -> None:
        """Note that blocks are moved, before which a file system flushes the file."""
        self._unflushed = []
        self.moves.append((mode, num_bytes))

    def _lose(self) -> None:
        """Take unflushed writes back, as a disk without power does with any of them."""
        lost = {"all": self._unflushed, "early": self._unflushed[:-1]}.get(self.lost, [])
        for descriptor, start, before in reversed(lost):
            self._pwrite(descriptor, before, start)


class _Fallocate:
    """The function of the C library, which says by -1 and `errno` that it fails."""

    def __init__(self, calls: BreakingCalls, real: Any) -> None:
        self.calls, self.real, self.argtypes = calls, real, None

    def __call__(self, *args: int) -> int:
        try:
            self.calls.step("fallocate")
        except OSError as error:
            ctypes.set_errno(error.errno or 0)
            return -1
        self.calls.moved(args[1], args[3])
        self.real.argtypes = self.argtypes
        return int(self.real(*args))


class NoLibrary:
    """A system whose C library has none of the functions that Linux has."""

    def __getitem__(self, name: str) -> Any:
        raise AttributeError(name)


@contextmanager
def library(replacement: object) -> Iterator[None]:
    """Give `ctypes` another C library for a while; what was found in one is forgotten."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ctypes, "CDLL", lambda *args, **kwargs: replacement)
        system_call.cache_clear()
        try:
            yield
        finally:
            system_call.cache_clear()
