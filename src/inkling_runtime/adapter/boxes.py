"""Boxes: rectangular parts of arrays, as arithmetic on sizes alone.

A box is a range for each axis. What is not here: any element. `arrays.load_box` loads one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeAlias

from inkling_runtime.adapter.moves import Shape

Range: TypeAlias = tuple[int, int]
Box: TypeAlias = tuple[Range, ...]


def whole(shape: Shape) -> Box:
    """Return the box of a whole array."""
    return tuple((0, size) for size in shape)


def shape_of(box: Box) -> Shape:
    """Return the sizes of a box."""
    return tuple(stop - start for start, stop in box)


def slices(box: Box) -> tuple[slice, ...]:
    """Return a box as an index of numpy."""
    return tuple(slice(start, stop) for start, stop in box)


def with_range(box: Box, axis: int, start: int, stop: int) -> Box:
    """Return a box with another range along an axis."""
    return (*box[:axis], (start, stop), *box[axis + 1 :])


def iter_boxes(shape: Shape, max_elements: int) -> Iterator[Box]:
    """Yield boxes of at most so many elements that follow one another in memory, C order."""
    if 0 in shape or not shape:
        yield whole(shape)
        return
    axis = 0
    while axis < len(shape) - 1 and prod(shape[axis + 1 :]) > max_elements:
        axis += 1
    step = max(1, max_elements // prod(shape[axis + 1 :]))
    inner = whole(shape[axis + 1 :])
    for outer in product(*(range(size) for size in shape[:axis])):
        for start in range(0, shape[axis], step):
            run = (start, min(start + step, shape[axis]))
            yield (*((index, index + 1) for index in outer), run, *inner)


@dataclass(frozen=True, slots=True)
class ReshapedBox:
    """How a box of a reshaped array comes out of a box of its source.

    The source's box is brought to `flat`, one axis for each group of axes that are split or
    merged; of that `runs` is kept, brought to `inner`, and `cut` out of it is the box.
    """

    source: Box
    flat: Shape
    runs: Box
    inner: Shape
    cut: Box


def reshaped_box(before: Shape, after: Shape, box: Box) -> ReshapedBox:
    """Return the smallest box of the source that holds a box of its reshape.

    Both shapes hold the same number of elements, which is not 0.
    """
    source: list[Range] = []
    flat, runs, inner, cut = [], [], [], []
    for sizes, new_sizes, ranges in _groups(before, after, box):
        start, stop, kept = _run_of(new_sizes, ranges)
        hull, offset = _hull_of(sizes, start, stop)
        source += hull
        flat.append(prod(shape_of(tuple(hull))))
        runs.append((start - offset, stop - offset))
        inner += kept
        cut += _within(kept, ranges)
    return ReshapedBox(tuple(source), tuple(flat), tuple(runs), tuple(inner), tuple(cut))


def _groups(
    before: Shape, after: Shape, box: Box
) -> Iterator[tuple[Sequence[int], Sequence[int], Sequence[Range]]]:
    """Yield runs of axes on both sides that hold the same elements, as short as they can be."""
    i = j = 0
    while i < len(before) or j < len(after):
        first_i, first_j = i, j
        size = before[i] if i < len(before) else 1
        new_size = after[j] if j < len(after) else 1
        i, j = min(i + 1, len(before)), min(j + 1, len(after))
        while size != new_size:
            if size < new_size:
                size *= before[i]
                i += 1
            else:
                new_size *= after[j]
                j += 1
        yield before[first_i:i], after[first_j:j], box[first_j:j]


def _run_of(sizes: Sequence[int], ranges: Sequence[Range]) -> tuple[int, int, list[int]]:
    """Return the run of flattened elements that holds ranges, and its sizes."""
    start, axis, kept = 0, 0, []
    while axis < len(sizes) and ranges[axis][1] - ranges[axis][0] == 1:
        start += ranges[axis][0] * prod(sizes[axis + 1 :])
        kept.append(1)
        axis += 1
    if axis == len(sizes):
        return start, start + 1, kept
    inner = prod(sizes[axis + 1 :])
    first, last = ranges[axis]
    kept += [last - first, *sizes[axis + 1 :]]
    return start + first * inner, start + last * inner, kept


def _within(kept: Sequence[int], ranges: Sequence[Range]) -> list[Range]:
    """Return ranges counted from the start of what was kept of each axis."""
    return [
        (0, stop - start) if size == stop - start else (start, stop)
        for size, (start, stop) in zip(kept, ranges, strict=True)
    ]


def _hull_of(sizes: Sequence[int], start: int, stop: int) -> tuple[list[Range], int]:
    """Return the ranges that hold a run of flattened elements, and where they begin in it."""
    hull: list[Range] = []
    offset, axis = 0, 0
    while axis < len(sizes):
        inner = prod(sizes[axis + 1 :])
        first, last = (start - offset) // inner, (stop - 1 - offset) // inner
        hull.append((first, last + 1))
        offset += first * inner
        axis += 1
        if first != last:
            break
    hull += [(0, size) for size in sizes[axis:]]
    return hull, offset
