"""Converts a folder in place and takes it back, killed at every system call in turn.

A program of its own, without torch, that forks a process for each death: `python … FOLDER`.
Prints how many processes were killed.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from breaking_calls import BreakingCalls

from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.arrays import CONTENTS
from inkling_runtime.adapter.convert.plan import plan_conversion
from inkling_runtime.adapter.dialects import require_dialect
from inkling_runtime.adapter.in_place.apply import apply_in_place
from inkling_runtime.adapter.in_place.plan import plan_in_place
from inkling_runtime.adapter.in_place.undo import is_interrupted, recover, undo


class KilledCalls(BreakingCalls):
    """The process is killed before its n-th system call."""

    def step(self, name: str) -> None:
        super().step(name)
        if len(self.names) == self.breaks_at:
            os.kill(os.getpid(), signal.SIGKILL)


def convert(folder: Path) -> None:
    adapter = read_adapter(folder)
    apply_in_place(plan_in_place(plan_conversion(adapter, require_dialect("vllm"), None, CONTENTS)))


def is_killed(act: Callable[[Path], None], folder: Path, number: int) -> bool:
    """Run an act in a process of its own; return whether it was killed before its end."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    code = 1
    try:
        with KilledCalls(number).installed():
            act(folder)
        code = 0
    finally:
        os._exit(code)


def contents_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def main(folder: Path) -> None:
    original, killed, closed = contents_of(folder), 0, 0
    convert(folder)
    converted = contents_of(folder)
    undo(folder)
    assert contents_of(folder) == original
    for act in (convert, undo):
        number = 1
        while True:
            if act is undo:
                convert(folder)
            if not is_killed(act, folder, number):
                break
            number, killed = number + 1, killed + 1
            closed += is_interrupted(folder)
            recover(folder)
            assert not is_interrupted(folder)
            state = contents_of(folder)
            assert state in (original, converted)
            if state == converted:
                undo(folder)
            assert contents_of(folder) == original
        assert contents_of(folder) == (converted if act is convert else original)
        if act is convert:
            undo(folder)
    assert closed > 10
    print(killed)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
