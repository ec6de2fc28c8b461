"""The files behind lazy arrays: opened once, read in boxes, and held to what they were.

Reading is safe from several threads. A box that is scattered over a tensor is read in runs, or
with what lies between them, whichever costs less.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import BinaryIO, TypeAlias

import numpy as np

from inkling_runtime.adapter.boxes import Box, shape_of, slices
from inkling_runtime.adapter.moves import Read, Shape
from inkling_runtime.adapter.regular_file import open_regular
from inkling_runtime.adapter.rounding import RawArray
from inkling_runtime.adapter.safetensors_file import DTYPE_BITS, SafetensorsFile
from inkling_runtime.errors import InklingError

Stamp: TypeAlias = tuple[int, int]
"""Size and time of change of a file."""

_CALL_BYTES = 32 << 10
"""Bytes that could be read in the time that one call costs."""
_MOST_OPEN = 48
"""Files that stay open: some systems allow a process 256, and two may be read at a time."""
_SLAB_BYTES = 4 << 20
"""What is read at once where more than the box must be read."""


def require_unchanged(headers: Iterable[SafetensorsFile]) -> None:
    """Require that files are what they were when their headers were read.

    Raises:
        InklingError: one is not there, or its size or time of change differs.
    """
    for header in headers:
        _require_same(header.path, (header.file_size, header.mtime_ns), header.path.stat)


class OpenFiles:
    """Files that are open as long as a block lasts."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: dict[Path, BinaryIO] = {}
        self._stamps: dict[Path, Stamp] = {}

    def __enter__(self) -> "OpenFiles":
        """Return itself; files are opened when they are first read."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all files."""
        for file in self._open.values():
            file.close()

    def require_unchanged(self) -> None:
        """Require that the files that were read are what they were when they were opened.

        Raises:
            InklingError: the size or the time of change of one differs.
        """
        for path, before in self._stamps.items():
            file = self._open.get(path)
            _require_same(path, before, partial(os.stat, file.fileno() if file else path))

    def read_bytes(self, path: Path, start: int, view: memoryview, name: str) -> None:
        """Fill a view with the bytes of a file from `start` on.

        Raises:
            InklingError: the file cannot be read, or ends inside the tensor `name`.
        """
        try:
            with self._opened(path) as descriptor:
                done = 0
                while done < len(view):
                    count = os.preadv(descriptor, [view[done:]], start + done)
                    if count == 0:
                        raise InklingError(f"`{path}` ended inside `{name}`")
                    done += count
        except OSError as error:
            raise InklingError(f"`{path}` cannot be read: {error.strerror or error}") from error

    @contextmanager
    def _opened(self, path: Path) -> Iterator[int]:
        """Yield the descriptor of a file; beyond a number of files it is closed again at once."""
        file = self._open.get(path)
        if file is None:
            file = self._keep(path, open_regular(path))
        try:
            yield file.fileno()
        finally:
            if self._open.get(path) is not file:
                file.close()

    def _keep(self, path: Path, file: BinaryIO) -> BinaryIO:
        """Keep a file open if few are, and note what it is; return it, or the one that is kept."""
        with self._lock:
            self._stamps.setdefault(path, _stamp(os.fstat(file.fileno())))
            if path not in self._open and len(self._open) < _MOST_OPEN:
                self._open[path] = file
            kept = self._open.get(path, file)
        if kept is not file:
            file.close()
        return kept

    def read_box(self, read: Read, box: Box) -> RawArray:
        """Return a box of a stored tensor, as unsigned integers of the element's width.

        Raises:
            InklingError: the file cannot be read, or ends inside the tensor.
        """
        shape, width = read.tensor.shape, max(DTYPE_BITS[read.tensor.dtype] // 8, 1)
        found = np.empty(shape_of(box), f"u{width}")
        axis = _axis_of_runs(shape, box, width)
        if _is_whole_within(shape, box, axis):
            self._read_runs(read, box, axis, found, width)
        else:
            self._read_slabs(read, box, axis, found, width)
        return found

    def _read_runs(self, read: Read, box: Box, axis: int, found: RawArray, width: int) -> None:
        """Read each run of the box straight into its place."""
        run = prod(shape_of(box[axis:])) * width
        view = memoryview(found.reshape(-1).view(np.uint8).data)
        for number, start in enumerate(_starts(read.tensor.shape, box, axis)):
            place = view[number * run : (number + 1) * run]
            position = read.tensor.start + start * width
            self.read_bytes(read.path, position, place, read.tensor.name)

    def _read_slabs(self, read: Read, box: Box, axis: int, found: RawArray, width: int) -> None:
        """Read runs with what lies beside the box, some rows at a time, and keep the box."""
        shape = read.tensor.shape
        row = prod(shape[axis + 1 :])
        rows, inside = shape_of(box)[axis], slices(box[axis + 1 :])
        step = max(1, _SLAB_BYTES // (row * width))
        outer = found.reshape(-1, *shape_of(box[axis:]))
        for number, start in enumerate(_starts(shape, box, axis)):
            for first in range(0, rows, step):
                count = min(step, rows - first)
                slab = np.empty((count, *shape[axis + 1 :]), found.dtype)
                view = memoryview(slab.reshape(-1).view(np.uint8).data)
                position = read.tensor.start + (start + first * row) * width
                self.read_bytes(read.path, position, view, read.tensor.name)
                outer[number, first : first + count] = slab[(slice(None), *inside)]


def _require_same(path: Path, before: Stamp, look: Callable[[], os.stat_result]) -> None:
    try:
        now = _stamp(look())
    except OSError as error:
        raise InklingError(f"`{path}` cannot be read: {error.strerror or error}") from error
    if now != before:
        raise InklingError(
            f"`{path}` changed while it was read, expected it to stay as it is",
            "run the command again once it is written",
        )


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns


def _axis_of_runs(shape: Shape, box: Box, width: int) -> int:
    """Return the axis along which a run is read, all of the axes behind it included."""
    sizes = shape_of(box)
    costs = []
    for axis in range(len(shape)):
        runs = prod(sizes[:axis])
        run_bytes = sizes[axis] * prod(shape[axis + 1 :]) * width
        costs.append((runs * (_CALL_BYTES + run_bytes), axis))
    return min(costs)[1] if costs else 0


def _is_whole_within(shape: Shape, box: Box, axis: int) -> bool:
    return shape_of(box[axis + 1 :]) == shape[axis + 1 :]


def _starts(shape: Shape, box: Box, axis: int) -> Iterator[int]:
    """Yield the number of the first element of each run."""
    strides = [prod(shape[index + 1 :]) for index in range(len(shape))]
    first = box[axis][0] * strides[axis] if shape else 0
    for index in product(*(range(*one) for one in box[:axis])):
        yield first + sum(i * stride for i, stride in zip(index, strides, strict=False))
