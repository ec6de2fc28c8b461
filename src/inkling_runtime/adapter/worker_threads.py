"""Two threads that do tasks in turn: the first exception, Ctrl-C included, ends all of them.

For work that leaves Python's lock most of the time: reading, hashing, moving and comparing bytes.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from inkling_runtime.adapter.interrupts import interrupts_held

NUM_THREADS = 2

T = TypeVar("T")
R = TypeVar("R")


class Ending:
    """Why threads are to end early: the first exception of any of them."""

    def __init__(self) -> None:
        self.cause: BaseException | None = None

    def end(self, cause: BaseException) -> None:
        """Let all threads end after what they are at."""
        if self.cause is None:
            self.cause = cause


def do_tasks(tasks: Iterable[T], work: Callable[[T], R], ending: Ending | None = None) -> list[R]:
    """Do all tasks and return what comes of each, in their order.

    No thread is left when this returns or raises.

    Args:
        tasks: what is handed to `work`.
        work: does one task; it may look at `ending` to stop in the middle of a long one.
        ending: of these threads.

    Raises:
        BaseException: that of the earliest task that raised one, or KeyboardInterrupt.
    """
    ending = ending or Ending()
    done: dict[int, R] = {}
    errors: dict[int, BaseException] = {}

    def do(number: int, task: T) -> None:
        is_later = not errors or number > min(errors)
        if ending.cause is not None and is_later:
            return
        try:
            done[number] = work(task)
        except BaseException as error:
            errors[number] = error
            ending.end(error)

    with interrupts_held(ending.end):
        pool = ThreadPoolExecutor(NUM_THREADS)
        try:
            for number, task in enumerate(tasks):
                pool.submit(do, number, task)
            pool.shutdown()
        except BaseException as error:
            ending.end(error)
            pool.shutdown()
            raise
    if errors:
        raise errors[min(errors)]
    if ending.cause is not None:
        raise ending.cause
    return [done[number] for number in range(len(done))]
