"""Which block of a whole parameter lies where in the part of it that is held.

Pure index arithmetic, for any number of axes: the files hold whole tensors, a rank holds parts,
and what is copied between the two are intersections of boxes. Nothing here knows a model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Box:
    """A block of the whole: [start, stop) on every axis, and where it begins in the part."""

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    local: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """What is held of a parameter: a shape, and the boxes that fill it exactly once."""

    shape: tuple[int, ...]
    boxes: tuple[Box, ...]

    def divided(self, divisor: int) -> "Part":
        """Return the same part where `divisor` neighbours of the last axis are one element."""

        def divide(index: tuple[int, ...]) -> tuple[int, ...]:
            return (*index[:-1], index[-1] // divisor)

        boxes = (Box(*map(divide, (box.starts, box.stops, box.local))) for box in self.boxes)
        return Part(divide(self.shape), tuple(boxes))

    def first_axis(self) -> "Part":
        """Return the part of a vector that has one number per index of the first axis."""
        boxes = (Box(box.starts[:1], box.stops[:1], box.local[:1]) for box in self.boxes)
        return Part(self.shape[:1], tuple(dict.fromkeys(boxes)))


def whole(shape: Sequence[int]) -> Part:
    """Return the part that is everything."""
    zeros = (0,) * len(shape)
    return Part(tuple(shape), (Box(zeros, tuple(shape), zeros),))


def cut(shape: Sequence[int], axis: int, spans: Sequence[tuple[int, int]]) -> Part:
    """Return the part that is some spans of one axis, one after the other."""
    boxes, position = [], 0
    for start, stop in spans:
        starts, stops, local = [0] * len(shape), list(shape), [0] * len(shape)
        starts[axis], stops[axis], local[axis] = start, stop, position
        boxes.append(Box(tuple(starts), tuple(stops), tuple(local)))
        position += stop - start
    held = list(shape)
    held[axis] = position
    return Part(tuple(held), tuple(boxes))


def leading_rows(part: Part, shape: Sequence[int]) -> slice | None:
    """Return the rows of the first axis that a part is, None if it is anything else."""
    if len(part.boxes) != 1 or part.shape[1:] != tuple(shape[1:]):
        return None
    box = part.boxes[0]
    return slice(box.starts[0], box.stops[0])


def copy_into(held: Tensor, part: Part, source: Tensor, offset: Sequence[int]) -> None:
    """Copy the block of the whole that begins at `offset` into the part, as far as it is held.

    Only what is held is read of the source.
    """
    for box in part.boxes:
        source_slices, held_slices = [], []
        for axis, size in enumerate(source.shape):
            begin = max(box.starts[axis], offset[axis])
            end = min(box.stops[axis], offset[axis] + size)
            source_slices.append(slice(begin - offset[axis], max(begin, end) - offset[axis]))
            shift = box.local[axis] - box.starts[axis]
            held_slices.append(slice(begin + shift, max(begin, end) + shift))
        _copy(held[tuple(held_slices)], source[tuple(source_slices)])


def _copy(held: Tensor, source: Tensor) -> None:
    if held.device == source.device or source.dim() < 3:
        held.copy_(source)
        return
    # Rows that are not neighbours are gathered on the host first: one expert's, not all of them.
    for row, values in zip(held, source, strict=True):
        row.copy_(values)
