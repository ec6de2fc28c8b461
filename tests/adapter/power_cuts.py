"""System calls at which a process dies, or the power is cut while it changes files in place."""

import os
from contextlib import suppress
from typing import Any

from breaking_calls import BreakingCalls


class Dead(BaseException):
    """The process is no more; nothing may catch it for good."""


class DyingCalls(BreakingCalls):
    """After a death every further call breaks too, so that no clean-up can help.

    Args:
        breaks_at: the number of the call that breaks, from 1.
        error: what it raises.
        lost: what else a death does. `half` writes half of what the call was to write; `all`
            takes back every write that was not flushed, `early` all of them but the latest.

    Attributes:
        moves: the modes and sizes of the calls that move blocks.
    """

    def __init__(
        self, breaks_at: int = 0, error: BaseException | None = None, lost: str = ""
    ) -> None:
        super().__init__(breaks_at, error)
        self.lost = lost
        self.moves: list[tuple[int, int]] = []
        self._unflushed: list[tuple[int, int, bytes]] = []
        self._pread, self._pwrite = os.pread, os.pwrite

    def step(self, name: str) -> None:
        if self.broken is not None and isinstance(self.error, Dead):
            raise self.error
        try:
            super().step(name)
        except Dead:
            self._lose()
            raise

    def before(self, name: str, args: tuple[Any, ...]) -> None:
        if name != "pwrite":
            return
        descriptor, data, start = args
        with suppress(OSError):
            self._unflushed.append((descriptor, start, self._pread(descriptor, len(data), start)))
        if self.lost == "half" and len(self.names) + 1 == self.breaks_at:
            self._pwrite(descriptor, data[: len(data) // 2], start)

    def after(self, name: str, args: tuple[Any, ...]) -> None:
        """Note what is flushed; before blocks are moved, a file system flushes the file."""
        if name == "fsync":
            self._unflushed = [write for write in self._unflushed if write[0] != args[0]]
        elif name == "fallocate":
            self._unflushed = []
            self.moves.append((args[1], args[3]))

    def _lose(self) -> None:
        """Take unflushed writes back, as a disk without power does with any of them."""
        lost = {"all": self._unflushed, "early": self._unflushed[:-1]}.get(self.lost, [])
        for descriptor, start, before in reversed(lost):
            self._pwrite(descriptor, before, start)
