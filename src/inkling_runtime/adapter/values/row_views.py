"""Follow some rows of a stored tensor through moves, so that a tensor can be read row by row.

A view says which axis of the moved array the rows of the tensor run along, and turns any run of
rows into that part of the array, without a copy. Moves that mix several tensors have no view.
"""

from collections.abc import Callable
from dataclasses import dataclass

from inkling_runtime.adapter.moves import Array, Permute, Read, Reshape, Shape, Slice
from inkling_runtime.adapter.rounding import RawArray
from inkling_runtime.adapter.safetensors_file import TensorInfo

Apply = Callable[[RawArray, int], tuple[RawArray, int]]
"""(rows, number of the first) → (part of the array, its first index along the axis)."""


@dataclass(frozen=True, slots=True)
class RowView:
    """How the rows of a tensor lie in an array.

    Attributes:
        tensor: what is read.
        axis: of the array, along which the rows run.
        unit: rows that stay together; runs begin at multiples of it.
        apply: from rows to the part of the array that they hold.
    """

    tensor: TensorInfo
    axis: int
    unit: int
    apply: Apply


def row_view(array: Array) -> RowView | None:
    """Return how the rows of the one tensor behind an array lie in it, None where they do not."""
    if isinstance(array, Read):
        return RowView(array.tensor, 0, 1, lambda rows, first: (rows, first))
    if isinstance(array, Reshape):
        return _reshaped(array)
    if isinstance(array, Permute):
        return _permuted(array)
    if isinstance(array, Slice):
        return _sliced(array)
    return None


def _reshaped(array: Reshape) -> RowView | None:
    source = row_view(array.source)
    if source is None:
        return None
    place = _place(array.source.shape, array.shape, source.axis)
    if place is None:
        return None
    axis, group = place

    def apply(rows: RawArray, first: int) -> tuple[RawArray, int]:
        part, start = source.apply(rows, first)
        shape = list(array.shape)
        shape[axis] = part.shape[source.axis] // group
        return part.reshape(shape), start // group

    return RowView(source.tensor, axis, source.unit * group, apply)


def _place(before: Shape, after: Shape, axis: int) -> tuple[int, int] | None:
    """Return where an axis goes in a reshape, and how many of its entries become one."""
    if after == (1, *before):
        return axis + 1, 1
    if after[: axis + 1] == before[: axis + 1]:
        return axis, 1
    group = after[axis + 1] if len(after) == len(before) + 1 else 0
    if after == (*before[:axis], before[axis] // max(group, 1), group, *before[axis + 1 :]):
        return axis, group
    return None


def _permuted(array: Permute) -> RowView | None:
    source = row_view(array.source)
    if source is None:
        return None

    def apply(rows: RawArray, first: int) -> tuple[RawArray, int]:
        part, start = source.apply(rows, first)
        return part.transpose(array.axes), start

    return RowView(source.tensor, array.axes.index(source.axis), source.unit, apply)


def _sliced(array: Slice) -> RowView | None:
    source = row_view(array.source)
    if source is None:
        return None

    def apply(rows: RawArray, first: int) -> tuple[RawArray, int]:
        part, start = source.apply(rows, first)
        index = [slice(None)] * part.ndim
        if array.axis != source.axis:
            index[array.axis] = slice(array.start, array.stop, array.step)
            return part[tuple(index)], start
        skipped = max(0, -(-(start - array.start) // array.step))
        begin = array.start + skipped * array.step - start
        end = max(begin, min(array.stop - start, part.shape[array.axis]))
        index[array.axis] = slice(begin, end, array.step)
        return part[tuple(index)], skipped

    return RowView(source.tensor, source.axis, source.unit, apply)
