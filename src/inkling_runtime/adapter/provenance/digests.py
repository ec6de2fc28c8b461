"""SHA-256 of stored tensors, in a few threads that may run beside other work.

Memory is a block for each thread. The bytes are read in order, so the disk is the limit.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import TypeAlias

import numpy as np

from inkling_runtime.adapter.interrupts import interrupts_held
from inkling_runtime.adapter.moves import Read
from inkling_runtime.adapter.open_files import OpenFiles
from inkling_runtime.adapter.worker_threads import NUM_THREADS
from inkling_runtime.errors import InklingError

_BLOCK_BYTES = 8 << 20
_TASK_BYTES = 8 << 20

Place: TypeAlias = tuple[Path, str]
"""A file and the name of a tensor in it."""


class BackgroundDigests:
    """The digests of stored tensors, computed while a block does something else.

    Threads end with the block, at once where it raises.
    """

    def __init__(
        self, reads: Iterable[Read], progress: Callable[[int], None] = lambda nbytes: None
    ) -> None:
        self._reads = tuple(reads)
        self._progress = progress
        self._files = OpenFiles()
        self._stop = Event()
        self._pool = ThreadPoolExecutor(NUM_THREADS)
        self._futures: list[Future[dict[Place, str]]] = []

    def __enter__(self) -> "BackgroundDigests":
        """Begin."""
        task: list[Read] = []
        size = 0
        for read in self._reads:
            task.append(read)
            size += read.tensor.nbytes
            if size >= _TASK_BYTES:
                self._submit(task)
                task, size = [], 0
        self._submit(task)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all threads and close the files."""
        with interrupts_held():
            self._stop.set()
            self._pool.shutdown(cancel_futures=True)
            self._files.__exit__(kind, error, trace)

    def wait(self) -> Mapping[Place, str]:
        """Return all digests as hexadecimal text, once they are there.

        Raises:
            InklingError: a file cannot be read, or changed meanwhile.
        """
        found: dict[Place, str] = {}
        for future in self._futures:
            found |= future.result()
        self._files.require_unchanged()
        return found

    def _submit(self, task: list[Read]) -> None:
        self._futures.append(self._pool.submit(self._hash_all, tuple(task)))

    def _hash_all(self, reads: tuple[Read, ...]) -> dict[Place, str]:
        largest = max((read.tensor.nbytes for read in reads), default=0)
        buffer = memoryview(np.empty(min(largest, _BLOCK_BYTES), np.uint8).data)
        return {(read.path, read.tensor.name): self._hash(read, buffer) for read in reads}

    def _hash(self, read: Read, buffer: memoryview) -> str:
        digest, size = hashlib.sha256(), read.tensor.nbytes
        for done in range(0, size, _BLOCK_BYTES):
            if self._stop.is_set():
                break
            block = buffer[: min(_BLOCK_BYTES, size - done)]
            self._files.read_bytes(read.path, read.tensor.start + done, block, read.tensor.name)
            digest.update(block)
            self._progress(len(block))
        return digest.hexdigest()


def hash_tensors(
    reads: Iterable[Read], progress: Callable[[int], None] = lambda nbytes: None
) -> Mapping[Place, str]:
    """Return the SHA-256 of stored tensors as hexadecimal text.

    Raises:
        InklingError: a file cannot be read, or changes meanwhile.
    """
    with BackgroundDigests(reads, progress) as digests:
        return digests.wait()


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file.

    Raises:
        InklingError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InklingError(f"`{path}` cannot be read: {error.strerror or error}") from error
