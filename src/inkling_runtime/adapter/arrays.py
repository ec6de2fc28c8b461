"""Evaluate lazy arrays with numpy, in boxes: elements as unsigned integers, moved or computed.

Memory is that of the boxes that are asked for, not of the tensors. A box of a permuted array comes
as a view; `contiguous` copies it fast.
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from inkling_runtime.adapter.arithmetic import Mix, Product, Scale, Sum
from inkling_runtime.adapter.boxes import (
    Box,
    Range,
    iter_boxes,
    reshaped_box,
    shape_of,
    slices,
    whole,
    with_range,
)
from inkling_runtime.adapter.moves import (
    Array,
    Expand,
    Interleave,
    Join,
    Permute,
    Read,
    Reshape,
    Slice,
    Zeros,
    cut,
)
from inkling_runtime.adapter.open_files import OpenFiles
from inkling_runtime.adapter.rounding import RawArray, narrow, widen
from inkling_runtime.adapter.safetensors_file import DTYPE_BITS
from inkling_runtime.adapter.site_pairs import Contents
from inkling_runtime.adapter.transpose import contiguous

BLOCK_BYTES = 8 << 20
"""What is loaded at once where an array is gone through in blocks."""

_WIDENED = 1 << 18
"""Elements that are widened at once: 2 MB as float64, and a few times that to round them."""


def load(array: Array) -> RawArray:
    """Return all elements of a lazy array, as unsigned integers of the element's width.

    Raises:
        InklingError: a file changed or cannot be read, or a number cannot be computed.
    """
    with OpenFiles() as files:
        return load_box(array, whole(array.shape), files)


def load_box(array: Array, box: Box, files: OpenFiles) -> RawArray:
    """Return a box of a lazy array, as unsigned integers of the element's width.

    The result may be a view with any strides, or share its elements with other boxes: it is not
    to be written to.

    Raises:
        InklingError: a file changed or cannot be read, or a number cannot be computed.
    """
    if 0 in shape_of(box):
        return np.empty(shape_of(box), _unsigned(array.dtype))
    return _EVALUATORS[type(array)](array, box, files)


def iter_blocks(array: Array, files: OpenFiles, nbytes: int = BLOCK_BYTES) -> Iterator[RawArray]:
    """Yield an array in blocks of about so many bytes, each in C order, one after another."""
    width = max(DTYPE_BITS[array.dtype] // 8, 1)
    for box in iter_boxes(array.shape, max(1, nbytes // width)):
        yield contiguous(load_box(array, box, files))


def is_same(first: Array, second: Array) -> bool:
    """Return whether two lazy arrays hold the same bytes."""
    if first == second:
        return True
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return False
    with OpenFiles() as files:
        blocks = zip(iter_blocks(first, files), iter_blocks(second, files), strict=True)
        return all(bool(np.array_equal(*both)) for both in blocks)


def is_repeated(array: Array) -> bool:
    """Return whether all entries along the leading axis are the same bytes."""
    if array.shape[0] == 1 or isinstance(array, Expand):
        return True
    with OpenFiles() as files:
        once = load_box(cut(array, 0, 0, 1), whole((1, *array.shape[1:])), files)
        size = max(1, BLOCK_BYTES // max(once.nbytes, 1))
        for start in range(1, array.shape[0], size):
            stop = min(start + size, array.shape[0])
            box = with_range(whole(array.shape), 0, start, stop)
            if not bool((load_box(array, box, files) == once).all()):
                return False
    return True


def is_zero(array: Array) -> bool:
    """Return whether every element is +0, so that `Zeros` is the same bytes."""
    if isinstance(array, Zeros):
        return True
    with OpenFiles() as files:
        return not any(bool(np.any(block)) for block in iter_blocks(array, files))


CONTENTS = Contents(is_same, is_repeated, is_zero)
"""Answers from the bytes themselves."""


def _unsigned(dtype: str) -> np.dtype[Any]:
    return np.dtype(f"u{max(DTYPE_BITS[dtype] // 8, 1)}")


def _read(array: Read, box: Box, files: OpenFiles) -> RawArray:
    return files.read_box(array, box)


def _zeros(array: Zeros, box: Box, files: OpenFiles) -> RawArray:
    return np.zeros(shape_of(box), _unsigned(array.dtype))


def _reshape(array: Reshape, box: Box, files: OpenFiles) -> RawArray:
    part = reshaped_box(array.source.shape, array.shape, box)
    source = contiguous(load_box(array.source, part.source, files))
    return source.reshape(part.flat)[slices(part.runs)].reshape(part.inner)[slices(part.cut)]


def _permute(array: Permute, box: Box, files: OpenFiles) -> RawArray:
    source: list[Range] = [(0, 0)] * len(box)
    for axis, one in zip(array.axes, box, strict=True):
        source[axis] = one
    return load_box(array.source, tuple(source), files).transpose(array.axes)


def _slice(array: Slice, box: Box, files: OpenFiles) -> RawArray:
    first, last = box[array.axis]
    start = array.start + first * array.step
    stop = array.start + (last - 1) * array.step + 1
    found = load_box(array.source, with_range(box, array.axis, start, stop), files)
    index = [slice(None)] * found.ndim
    index[array.axis] = slice(None, None, array.step)
    return found[tuple(index)]


def _join(array: Join, box: Box, files: OpenFiles) -> RawArray:
    first, last = box[array.axis]
    parts, before = [], 0
    for source in array.sources:
        size = source.shape[array.axis]
        start, stop = max(first - before, 0), min(last - before, size)
        if start < stop:
            parts.append(load_box(source, with_range(box, array.axis, start, stop), files))
        before += size
        if before >= last:
            break
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=array.axis)


def _interleave(array: Interleave, box: Box, files: OpenFiles) -> RawArray:
    first, last = box[array.axis]
    start, stop = first // 2, (last + 1) // 2
    both = [
        load_box(source, with_range(box, array.axis, start, stop), files)
        for source in (array.first, array.second)
    ]
    shape = list(both[0].shape)
    shape[array.axis] *= 2
    rows = np.stack(both, axis=array.axis + 1).reshape(shape)
    kept = with_range(whole(tuple(shape)), array.axis, first - 2 * start, last - 2 * start)
    return rows[slices(kept)]


def _expand(array: Expand, box: Box, files: OpenFiles) -> RawArray:
    once = load_box(array.source, with_range(box, 0, 0, 1), files)
    return np.broadcast_to(once, shape_of(box))


def _scale(array: Scale, box: Box, files: OpenFiles) -> RawArray:
    source = contiguous(load_box(array.source, box, files)).reshape(-1)
    result = np.empty(shape_of(box), _unsigned(array.dtype))
    flat = result.reshape(-1)
    for start in range(0, source.size, _WIDENED):
        part = slice(start, start + _WIDENED)
        numbers = widen(source[part], array.source.dtype, "F64")
        with np.errstate(over="ignore", invalid="ignore"):
            numbers *= array.factor
        if array.factor < 0:
            numbers += 0.0  # -0 becomes +0, so that rows without effect are still `is_zero`
        flat[part] = narrow(numbers, array.dtype)
    return result


def _mix(array: Mix, box: Box, files: OpenFiles) -> RawArray:
    axis = array.axis % len(box)
    result = np.empty(shape_of(box), _unsigned(array.dtype))
    for part, place in _iter_mix_parts(box, axis, array.source.shape[axis]):
        result[slices(place)] = _mix_part(array, part, axis, files)
    return result


def _iter_mix_parts(box: Box, axis: int, rank: int) -> Iterator[tuple[Box, Box]]:
    """Yield parts of a box with all of its ranks, and where each lies in it.

    Along the columns of B before its experts: where it is packed, those are the fastest on disk.
    """
    sizes = shape_of(box)
    axes = [one for one in range(len(box)) if one != axis]
    steps, elements = {axis: sizes[axis]}, max(rank, sizes[axis])
    for one in axes if axis == len(box) - 1 else reversed(axes):
        steps[one] = max(1, min(sizes[one], _WIDENED // elements))
        elements *= steps[one]
    ranges = [
        [(start, min(start + steps[one], stop)) for start in range(first, stop, steps[one])]
        for one, (first, stop) in enumerate(box)
    ]
    for part in product(*ranges):
        yield part, tuple((a - c, b - c) for (a, b), (c, _) in zip(part, box, strict=True))


def _mix_part(array: Mix, box: Box, axis: int, files: OpenFiles) -> RawArray:
    rank = array.source.shape[axis]
    coefficients = array.coefficients.values
    if coefficients.ndim == 3:
        coefficients = coefficients[slice(*box[0])] if len(coefficients) > 1 else coefficients
        if array.source.shape[0] == 1:
            box = with_range(box, 0, 0, 1)
    coefficients = coefficients[..., slice(*box[axis]), :]
    source = load_box(array.source, with_range(box, axis, 0, rank), files)
    numbers = widen(source, array.source.dtype, "F64")
    if axis == len(box) - 1:
        return narrow(numbers @ coefficients.swapaxes(-1, -2), array.dtype)
    return narrow(coefficients @ numbers, array.dtype)


def _product(array: Product, box: Box, files: OpenFiles) -> RawArray:
    rows, columns = box[-2:]
    a, b = (
        widen(load_box(factor, _part_of(factor, box, ranges), files), factor.dtype, array.dtype)
        for factor, ranges in (
            (array.a, ((0, array.a.shape[-2]), columns)),
            (array.b, (rows, (0, array.b.shape[-1]))),
        )
    )
    delta = b @ a
    delta *= array.scaling
    return delta.view(_unsigned(array.dtype))


def _part_of(factor: Array, box: Box, ranges: tuple[Range, Range]) -> Box:
    """Return the box of a factor whose leading axis is that of a delta, or 1 for all experts."""
    experts = [(0, 1) if size == 1 else box[axis] for axis, size in enumerate(factor.shape[:-2])]
    return (*experts, *ranges)


def _sum(array: Sum, box: Box, files: OpenFiles) -> RawArray:
    wide = array.deltas[0].dtype
    total = widen(load_box(array.base, box, files), array.base.dtype, wide)
    for delta in array.deltas:
        total += widen(load_box(delta, box, files), delta.dtype, wide)
    return narrow(total, array.dtype)


_EVALUATORS: dict[type, Callable[[Any, Box, OpenFiles], RawArray]] = {
    Read: _read,
    Zeros: _zeros,
    Reshape: _reshape,
    Permute: _permute,
    Slice: _slice,
    Join: _join,
    Interleave: _interleave,
    Expand: _expand,
    Scale: _scale,
    Mix: _mix,
    Product: _product,
    Sum: _sum,
}
