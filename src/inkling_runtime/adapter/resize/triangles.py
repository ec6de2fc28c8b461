"""The triangle R of a factor's QR, from its rows in pieces: norms and angles in [R, R].

Not the Gram matrix, which is cheaper: it squares the numbers, and singular values below 1e-8 of
the largest would be lost in rounding. A tall factor is cut into short blocks whose triangles are
stacked and reduced again, so memory is that of a piece whatever the factor's size. All float64.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from inkling_runtime.adapter.arrays import load_box
from inkling_runtime.adapter.boxes import Range
from inkling_runtime.adapter.moves import Array, iter_reads, reshape, verbs
from inkling_runtime.adapter.open_files import OpenFiles
from inkling_runtime.adapter.rounding import widen
from inkling_runtime.errors import InklingError, format_names

Wide = NDArray[np.float64]

_PIECE = 1 << 20
"""Elements that are read and widened at once: 8 MB as float64."""

_STATE = 1 << 21
"""Elements of unfinished triangles that are held at once: 16 MB."""

_SHORT = 1024
"""Rows of a short block: fits a processor's cache at the usual ranks."""


def find_triangles(
    factor: Array, *, is_a: bool, is_common: bool, files: OpenFiles, name: str
) -> Wide:
    """Return the triangles of a factor, [1 or E, at most R, R].

    Args:
        factor: A [(E,) R, in] or B [(E,) out, R].
        is_a: whether it is A, whose columns are the rows that count.
        is_common: one triangle for the rows of all experts, not one for each.
        files: to read from.
        name: of the sites, for an error.

    Raises:
        InklingError: an element is NaN or infinite, or a file cannot be read.
    """
    if len(factor.shape) == 2:
        factor = reshape(factor, 1, *factor.shape)
    experts, length = factor.shape[0], factor.shape[2 if is_a else 1]
    rank = factor.shape[1 if is_a else 2]
    result = np.empty((1 if is_common else experts, 0, rank))
    finished = []
    for chosen, along in _iter_ranges(factor, is_a, is_common, length, rank):
        box = (chosen, (0, rank), along) if is_a else (chosen, along, (0, rank))
        numbers = widen(load_box(factor, box, files), factor.dtype, "F64")
        if not np.isfinite(numbers).all():
            raise _not_finite(factor, name, "A" if is_a else "B")
        rows: Wide = np.asarray(numbers.swapaxes(1, 2) if is_a else numbers)
        if is_common:
            result = reduce(np.concatenate([result, rows.reshape(1, -1, rank)], axis=1))
            continue
        if along[0] == 0:
            result = np.empty((len(rows), 0, rank))
        result = reduce(np.concatenate([result, rows], axis=1))
        if along[1] == length:
            finished.append(result)
    return result if is_common else np.concatenate(finished)


def _not_finite(factor: Array, name: str, letter: str) -> InklingError:
    folders = list(dict.fromkeys(str(read.path.parent) for read in iter_reads(factor)))
    commands = " and ".join(f"`inkling check-adapter {folder} --values`" for folder in folders)
    return InklingError(
        f"{letter} of `{name}` holds NaN or infinity in {format_names(folders)}, "
        "expected finite numbers",
        f"{commands} shows which elements",
    )


def _iter_ranges(
    factor: Array, is_a: bool, is_common: bool, length: int, rank: int
) -> Iterator[tuple[Range, Range]]:
    """Yield ranges of experts and of rows, those of one expert one after another.

    Where the expert is the fastest axis on disk, a piece holds rows of many experts: read expert
    by expert, the whole factor would pass once for each.
    """
    experts = factor.shape[0]
    if not is_a and "permute" in verbs(factor):
        step = experts if is_common else max(1, _STATE // rank**2)
        stride = max(1 if is_common else rank, _PIECE // (min(step, experts) * rank))
    else:
        step, stride = max(1, _PIECE // (rank * length)), max(rank, _PIECE // rank)
    for first in range(0, experts, step):
        for start in range(0, length, stride):
            yield (first, min(first + step, experts)), (start, min(start + stride, length))


def reduce(rows: Wide) -> Wide:
    """Return the triangle of each [rows, R] of a stack, [E, at most R, R]."""
    count, length, rank = rows.shape
    short = max(_SHORT, 2 * rank)
    while length > 2 * short:
        blocks = -(-length // short)
        padded = np.zeros((count, blocks * short, rank))
        padded[:, :length] = rows
        triangles = np.linalg.qr(padded.reshape(count * blocks, short, rank), mode="r")
        rows = np.asarray(triangles).reshape(count, blocks * rank, rank)
        length = blocks * rank
    return np.asarray(np.linalg.qr(rows, mode="r"))
