"""The tokens of some requests as they come, and the handle to end them early."""

import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from types import TracebackType

from inkling_runtime.engine.engine import Engine
from inkling_runtime.engine.request import Completion, Request, TokenEvent
from inkling_runtime.engine.sequence import Sequence as Running


class Stream(Iterator[TokenEvent]):
    """An iterator over the events of requests; each ends with one that has a finish reason.

    A request that cannot be done ends with an event that says why; the others go on. Closing the
    stream, or losing it, gives back what its requests own.

    Args:
        engine: who runs the requests.
        requests: what is asked; they wait from now on.
    """

    def __init__(self, engine: Engine, requests: Sequence[Request]) -> None:
        self._engine = engine
        self._inbox: deque[TokenEvent] = deque()
        self._sequences = [
            Running(index, request, self._inbox) for index, request in enumerate(requests)
        ]
        self._first_open = 0
        self._close = weakref.finalize(self, engine.cancel, self._sequences)
        self._close.atexit = False
        for sequence in self._sequences:
            engine.add(sequence)

    def __next__(self) -> TokenEvent:
        """Return the next event; the engine steps until there is one."""
        while not self._inbox:
            if self._is_done():
                raise StopIteration
            self._engine.step()
        return self._inbox.popleft()

    def __enter__(self) -> "Stream":
        """Return itself; it is closed at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def cancel(self, request: int) -> None:
        """End one request, by its index; a finished one stays as it is."""
        self._engine.cancel([self._sequences[request]])

    def close(self) -> None:
        """End all requests; nothing more comes."""
        self._close()
        self._inbox.clear()

    def completions(self) -> list[Completion]:
        """Return what was generated for all requests, once they are finished."""
        return [sequence.completion() for sequence in self._sequences]

    def _is_done(self) -> bool:
        sequences = self._sequences
        while self._first_open < len(sequences) and sequences[self._first_open].finish_reason:
            self._first_open += 1
        return self._first_open == len(sequences)
