"""System calls of which one breaks: the n-th, with any exception, whichever thread makes it.

Stands in for the kernel, never for our own functions: what Python's modules offer is wrapped.
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import pytest

from inkling_runtime.adapter.system_calls import system_call


class BreakingCalls:
    """Wraps the system calls that change files in place, and counts them.

    Args:
        breaks_at: the number of the call that breaks, from 1.
        error: what it raises; None breaks nothing.
        is_linux: whether the C library has the functions that only Linux has.

    Attributes:
        names: of the calls so far.
        broken: the name of the call that broke, None while none did.
    """

    os_calls: tuple[str, ...] = (
        "fchmod",
        "fchown",
        "fsync",
        "ftruncate",
        "open",
        "pwrite",
        "replace",
        "unlink",
    )

    def __init__(
        self, breaks_at: int = 0, error: BaseException | None = None, *, is_linux: bool = True
    ) -> None:
        self.breaks_at, self.error, self.is_linux = breaks_at, error, is_linux
        self.names: list[str] = []
        self.broken: str | None = None
        self._lock = Lock()
        self._library = ctypes.CDLL(None, use_errno=True)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Put the calls in the kernel's place for a while; what `ctypes` found is forgotten."""
        with pytest.MonkeyPatch.context() as patched:
            self.patch(patched)
            system_call.cache_clear()
            try:
                yield
            finally:
                system_call.cache_clear()

    def patch(self, patched: pytest.MonkeyPatch) -> None:
        """Wrap the calls."""
        for name in self.os_calls:
            patched.setattr(os, name, self.wrapped(name, getattr(os, name)))
        patched.setattr(ctypes, "CDLL", lambda *args, **kwargs: self)

    def wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return a call that is counted and may break."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.before(name, args)
            self.step(name)
            self.after(name, args)
            return real(*args, **kwargs)

        return call

    def before(self, name: str, args: tuple[Any, ...]) -> None:
        """See a call that is about to be made, or to break."""

    def after(self, name: str, args: tuple[Any, ...]) -> None:
        """See a call that is made."""

    def step(self, name: str) -> None:
        """Count a call, and break if it is the one."""
        with self._lock:
            self.names.append(name)
            if len(self.names) != self.breaks_at or self.error is None:
                return
            self.broken = name
        raise self.error

    def __getitem__(self, name: str) -> "_LibraryCall":
        """Return a function of the C library, as `ctypes` does."""
        if not self.is_linux:
            raise AttributeError(name)
        return _LibraryCall(name, self._library[name], self)


class _LibraryCall:
    """A function of the C library, which says by -1 and `errno` that it is refused."""

    def __init__(self, name: str, real: Any, calls: BreakingCalls) -> None:
        self.call, self.real = calls.wrapped(name, real), real

    @property
    def argtypes(self) -> Any:
        """The types of the arguments."""
        return self.real.argtypes

    @argtypes.setter
    def argtypes(self, types: Any) -> None:
        self.real.argtypes = types

    def __call__(self, *args: Any) -> int:
        try:
            return int(self.call(*args))
        except OSError as error:
            ctypes.set_errno(error.errno or 0)
            return -1
