"""Write a safetensors file from lazy arrays at the speed of the disk, in little memory.

Two threads take tensors in turn; each reads, moves or computes, hashes and writes a block at a
time, so that none of it waits for the other. What was written is flushed as it goes and dropped
from the page cache: neither memory nor dirty pages grow with the file. Nothing here decides what
is written.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np

from inkling_runtime.adapter.arithmetic import Sum
from inkling_runtime.adapter.arrays import iter_blocks
from inkling_runtime.adapter.flushed_file import FlushedPages, reserve, write_all
from inkling_runtime.adapter.moves import iter_nodes
from inkling_runtime.adapter.open_files import OpenFiles
from inkling_runtime.adapter.outputs import Output, copied_runs
from inkling_runtime.adapter.safetensors_file import format_header
from inkling_runtime.adapter.worker_threads import Ending, do_tasks
from inkling_runtime.errors import InklingError

BLOCK_BYTES = 8 << 20
_SUM_BYTES = 1 << 20
"""The block where base weights and deltas are added: their wide numbers stay in the cache."""

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of bytes just written, from any thread."""


Placed: TypeAlias = tuple[Output, int]
"""An output and where its bytes begin in the file."""


def write_tensors(
    path: Path,
    outputs: Sequence[Output],
    metadata: Mapping[str, str],
    progress: Progress = lambda nbytes: None,
) -> dict[str, str]:
    """Write a file, flush it to the disk and return the SHA-256 of each tensor's bytes.

    Memory: a few blocks of 8 MB, and what computing one takes.

    Raises:
        InklingError: a source cannot be read or changes meanwhile, or a number does not fit into
            a dtype. The file is left as it is: the caller removes it.
        OSError: the file cannot be written.
    """
    header = format_header((output.spec for output in outputs), metadata)
    found: dict[str, str] = {}
    with OpenFiles() as files, path.open("wb", buffering=0) as file:
        descriptor = file.fileno()
        reserve(descriptor, len(header) + sum(output.spec.nbytes for output in outputs))
        write_all(descriptor, memoryview(header), 0)
        writer = _Writer(descriptor, files, progress, found)
        do_tasks(_tasks(_placed(outputs, len(header))), writer.write, writer.ending)
        files.require_unchanged()
        os.fsync(descriptor)
    return {output.spec.name: found[output.spec.name] for output in outputs}


def _placed(outputs: Iterable[Output], start: int) -> Iterator[Placed]:
    for output in outputs:
        yield output, start
        start += output.spec.nbytes


def _tasks(placed: Iterable[Placed]) -> Iterator[tuple[Placed, ...]]:
    """Yield runs of outputs of a block's size or more."""
    task: list[Placed] = []
    size = 0
    for one in placed:
        task.append(one)
        size += one[0].spec.nbytes
        if size >= BLOCK_BYTES:
            yield tuple(task)
            task, size = [], 0
    if task:
        yield tuple(task)


@dataclass(frozen=True, slots=True)
class _Writer:
    """What all threads share. `found` gets the digests."""

    descriptor: int
    files: OpenFiles
    progress: Progress
    found: dict[str, str]
    ending: Ending = field(default_factory=Ending)

    def write(self, task: tuple[Placed, ...]) -> None:
        """Write some outputs, or a part of them where the threads are to end."""
        pages = FlushedPages(self.descriptor)
        for output, start in task:
            digest = hashlib.sha256()
            for block in _blocks(output, self.files):
                if self.ending.cause is not None:
                    return
                digest.update(block)
                write_all(self.descriptor, block, start)
                pages.add(start, len(block))
                start += len(block)
                self.progress(len(block))
            self.found[output.spec.name] = digest.hexdigest()
        pages.drop_all()


def _blocks(output: Output, files: OpenFiles) -> Iterator[memoryview]:
    """Yield an output's bytes, a block at a time; a block lasts until the next is asked for."""
    runs = copied_runs(output.array)
    if runs is None:
        yield from _computed_blocks(output, files)
        return
    buffer = memoryview(np.empty(min(output.spec.nbytes, BLOCK_BYTES), np.uint8).data)
    filled = 0
    for run in runs:
        done = 0
        while done < run.size:
            size = min(run.size - done, len(buffer) - filled)
            start, name = run.read.tensor.start + run.start + done, run.read.tensor.name
            files.read_bytes(run.read.path, start, buffer[filled : filled + size], name)
            done, filled = done + size, filled + size
            if filled == len(buffer):
                yield buffer
                filled = 0
    if filled:
        yield buffer[:filled]


def _computed_blocks(output: Output, files: OpenFiles) -> Iterator[memoryview]:
    size = _SUM_BYTES if isinstance(output.array, Sum) else BLOCK_BYTES
    try:
        for block in iter_blocks(output.array, files, size):
            yield memoryview(block.reshape(-1).view(np.uint8).data)
    except InklingError as error:
        if not any(node.verb in _ROUNDING for node in iter_nodes(output.array)):
            raise
        raise InklingError(f"`{output.spec.name}`: {error.message}", error.hint) from error


_ROUNDING = ("scale", "cast", "mix", "add")
"""Verbs of arrays that may meet a number that does not fit."""
