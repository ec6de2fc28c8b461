"""Small matrices of float64 that are too many to hold: they wait in a temporary file.

An adapter whose experts have both factors of their own has two matrices for every expert, which
together can be larger than all that may be in memory. The file has no name and goes with the
store.
"""

import os
import tempfile
from dataclasses import dataclass, replace
from math import prod
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from inkling_runtime.adapter.flushed_file import write_all
from inkling_runtime.adapter.moves import Shape
from inkling_runtime.errors import InklingError

Wide = NDArray[np.float64]


class CoefficientStore:
    """A place for matrices, as long as a block lasts."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None

    def __enter__(self) -> "CoefficientStore":
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give up what was kept; it cannot be used any more."""
        if self._file is not None:
            self._file.close()

    def reserve(self, shape: Shape) -> "KeptMatrices":
        """Return a place for matrices [E, n, R], all of which are seen.

        Raises:
            InklingError: there can be no temporary file.
        """
        try:
            self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115
            start = self._file.seek(0, os.SEEK_END)
            self._file.truncate(start + 8 * prod(shape))
        except OSError as error:
            raise _no_room(error) from error
        return KeptMatrices(self._file.fileno(), start, shape, shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class KeptMatrices:
    """Matrices [E, n, R] of which the first `rank` rows are seen; rows that are lacking are zero.

    Indexed as numpy's arrays are, from several threads: what is asked for is read then.
    """

    descriptor: int
    start: int
    stored: Shape
    rank: int

    ndim = 3

    @property
    def shape(self) -> Shape:
        """The sizes that are seen."""
        return (self.stored[0], self.rank, self.stored[2])

    def put(self, first: int, values: Wide) -> None:
        """Keep the matrices of some experts, from the first on.

        Raises:
            InklingError: there is no room for them.
        """
        view = memoryview(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
        try:
            write_all(self.descriptor, view, self._position(first))
        except OSError as error:
            raise _no_room(error) from error

    def seen(self, rank: int) -> "KeptMatrices":
        """Return the same matrices with another number of rows that are seen."""
        return replace(self, rank=rank)

    def __len__(self) -> int:
        return self.stored[0]

    def __getitem__(self, index: Any) -> Wide:
        if isinstance(index, slice):
            first, last, _ = index.indices(len(self))
            return first_rows(self._read(first, last), self.rank)
        found: Wide = first_rows(self._read(0, len(self)), self.rank)[index]
        return found

    def _read(self, first: int, last: int) -> Wide:
        _, rank, width = self.stored
        found = np.empty((last - first, rank, width))
        view, position = memoryview(found.reshape(-1).view(np.uint8).data), self._position(first)
        while view:
            count = os.preadv(self.descriptor, [view], position)
            if count == 0:
                raise InklingError("the temporary file for small matrices ended early")
            view, position = view[count:], position + count
        return found

    def _position(self, expert: int) -> int:
        _, rank, width = self.stored
        return self.start + 8 * expert * rank * width


def _no_room(error: OSError) -> InklingError:
    return InklingError(
        f"a temporary file for small matrices cannot be written: {error.strerror or error}",
        "set `TMPDIR` to a folder with more room",
    )


def first_rows(values: Wide, rank: int) -> Wide:
    """Return the first `rank` rows of each matrix [..., n, R], zeros where there are fewer."""
    found = np.zeros((*values.shape[:-2], rank, values.shape[-1]))
    rows = min(rank, values.shape[-2])
    found[..., :rows, :] = values[..., :rows, :]
    return found
