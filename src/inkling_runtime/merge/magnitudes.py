"""Whether the factors of an adapter can be multiplied: no NaN, no infinity, nothing too large.

A weight of the base that became NaN would show only when the model is run. The factors are small
beside the base, so all of them are read before anything is written.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from inkling_runtime.adapter.arrays import iter_blocks
from inkling_runtime.adapter.moves import Array, Read, iter_reads
from inkling_runtime.adapter.open_files import OpenFiles
from inkling_runtime.adapter.pairs import Pair
from inkling_runtime.adapter.rounding import widen
from inkling_runtime.errors import InklingError

_LARGEST_DELTA = 1e37
"""A bound on the elements of a delta; F32 holds 3.4e38, and base weights are added."""


def require_computable(pairs: Iterable[Pair]) -> None:
    """Require that the elements of every delta are numbers that F32 holds.

    Raises:
        InklingError: a factor has NaN or infinity, or is too large, with the tensor's name.
    """
    largest: dict[tuple[Path, str], float] = {}
    with OpenFiles() as files:
        for pair in pairs:
            a, b = (_largest_of(factor, files, largest) for factor in (pair.a, pair.b))
            bound = abs(pair.scaling) * pair.rank * a * b
            if not bound < _LARGEST_DELTA:
                first = next(read.tensor.name for read in iter_reads(pair.a))
                raise InklingError(
                    f"`{first}` and its B give a delta of up to {bound:.3g}, expected it below "
                    f"{_LARGEST_DELTA:g}",
                    "the adapter is broken; train or fetch it again",
                )


def _largest_of(factor: Array, files: OpenFiles, largest: dict[tuple[Path, str], float]) -> float:
    """Return the largest magnitude in the tensors that a factor comes from."""
    found = 0.0
    for read in iter_reads(factor):
        key = read.path, read.tensor.name
        if key not in largest:
            largest[key] = _largest_in(read, files)
        found = max(found, largest[key])
    return found


def _largest_in(read: Read, files: OpenFiles) -> float:
    found = 0.0
    for block in iter_blocks(read, files):
        numbers = widen(block, read.dtype, "F64" if read.dtype == "F64" else "F32")
        if not numbers.size:
            continue
        top = float(np.abs(numbers, out=numbers).max())
        if not np.isfinite(top):
            raise InklingError(
                f"`{read.tensor.name}` of `{read.path}` holds NaN or infinity, expected numbers",
                "the adapter is broken; train or fetch it again",
            )
        found = max(found, top)
    return found
