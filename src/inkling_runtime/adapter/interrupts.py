"""Ctrl-C put off while threads run or folders change places; not a way to ignore it.

An exception in the middle of `Thread.join` leaves Python 3.11 believing that the thread has ended,
so it would go on writing into a file that is closed. Here it is noted and raised afterwards.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType


@contextmanager
def interrupts_held(note: Callable[[KeyboardInterrupt], None] | None = None) -> Iterator[None]:
    """Run a block that Ctrl-C does not break into; raise KeyboardInterrupt when it has ended.

    Nothing changes where Ctrl-C would not raise that: in another thread than the main one, and
    where a program has a handler of its own.

    Args:
        note: is told of it at once, so that the block may end early.
    """
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if current_thread() is not main_thread() or not is_ours:
        yield
        return
    came: list[KeyboardInterrupt] = []

    def hold(number: int, frame: FrameType | None) -> None:
        came.append(KeyboardInterrupt())
        if note is not None:
            note(came[0])

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if came:
            raise came[0]
