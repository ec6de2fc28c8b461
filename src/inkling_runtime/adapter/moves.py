"""Moves: lazy arrays that say where bytes come from, without touching one.

Data, not work: a conversion is a tree of moves over tensors of the source file, built and
inspected from headers alone, and evaluated by `arrays.load_box`. Elements are only moved here, so
bf16 needs no arithmetic and the result is exact to the byte; what rounds is in `arithmetic`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Protocol, TypeAlias

from inkling_runtime.adapter.safetensors_file import DTYPE_BITS, TensorInfo

Shape: TypeAlias = tuple[int, ...]


class Array(Protocol):
    """A lazy array: a safetensors dtype, a shape, the arrays that its elements come from."""

    @property
    def dtype(self) -> str:
        """The safetensors dtype."""

    @property
    def shape(self) -> Shape:
        """The sizes of all axes."""

    @property
    def inputs(self) -> "tuple[Array, ...]":
        """The arrays that it takes its elements from."""

    @property
    def verb(self) -> str | None:
        """What happens to the bytes, in a word; None where they stay as they are."""


def nbytes_of(array: Array) -> int:
    """Return the size of an array in bytes."""
    return DTYPE_BITS[array.dtype] * prod(array.shape) // 8


@dataclass(frozen=True, slots=True)
class Read:
    """A tensor of a file, as it is."""

    path: Path
    tensor: TensorInfo

    @property
    def dtype(self) -> str:
        """The safetensors dtype."""
        return self.tensor.dtype

    @property
    def shape(self) -> Shape:
        """The shape on disk."""
        return self.tensor.shape

    @property
    def inputs(self) -> tuple[Array, ...]:
        """What it takes its elements from."""
        return ()

    @property
    def verb(self) -> str | None:
        """What happens to the bytes."""
        return None


@dataclass(frozen=True, slots=True)
class Zeros:
    """Zeros of a dtype and shape."""

    dtype: str
    shape: Shape

    @property
    def inputs(self) -> tuple[Array, ...]:
        """What it takes its elements from."""
        return ()

    @property
    def verb(self) -> str | None:
        """What happens to the bytes."""
        return "pad"


class _OfOne:
    """What moves of one array have in common."""

    __slots__ = ()
    source: Array

    @property
    def dtype(self) -> str:
        """The source's dtype."""
        return self.source.dtype

    @property
    def inputs(self) -> tuple[Array, ...]:
        """What it takes its elements from."""
        return (self.source,)


@dataclass(frozen=True, slots=True)
class Reshape(_OfOne):
    """The same elements in the same order under another shape."""

    source: Array
    shape: Shape

    @property
    def verb(self) -> str | None:
        """What happens to the bytes."""
        return None


@dataclass(frozen=True, slots=True)
class Permute(_OfOne):
    """Axes in another order."""

    source: Array
    axes: tuple[int, ...]

    @property
    def shape(self) -> Shape:
        """The source's sizes in the new order."""
        return tuple(self.source.shape[axis] for axis in self.axes)

    @property
    def verb(self) -> str | None:
        """What happens to the bytes."""
        return "permute"


@dataclass(frozen=True, slots=True)
class Slice(_OfOne):
    """Elements `start, start+step, … < stop` along one axis."""

    source: Array
    axis: int
    start: int
    stop: int
    step: int = 1

    @property
    def shape(self) -> Shape:
        """The source's shape with the axis cut."""
        sizes = list(self.source.shape)
        sizes[self.axis] = len(range(self.start, self.stop, self.step))
        return tuple(sizes)

    @property
    def verb(self) -> str | None:
        """What happens to the bytes."""
        return "de-interleave" if self.step > 1 else "split"


@dataclass(frozen=True, slots=True)
class Join:
    """Arrays one after another along one axis."""

    sources: tuple[Array, ...]
    axis: int

    @property
    def dtype(self) -> str:
        """The dtype that all sources share."""
        return self.sources[0].dtype

    @property
    def shape(self) -> Shape:
        """The sources' shape with the axis summed."""
        sizes = list(self.sources[0].shape)
        sizes[self.axis] = sum(source.shape[self.axis] for source in self.sources)
        return tuple(sizes)

    @property
    def inputs(self) -> tuple[Array, ...]:
        """What it takes its elements from."""
        return self.sources

    @property
    def verb(self) -> str | None:
        """What happens to the bytes."""
        return "join"


@dataclass(frozen=True, slots=True)
class Interleave:
    """Rows of two arrays in turn along one axis: a0, b0, a1, b1 and so on."""

    first: Array
    second: Array
    axis: int

    @property
    def dtype(self) -> str:
        """The dtype that both share."""
        return self.first.dtype

    @property
    def shape(self) -> Shape:
        """The shape of one with the axis doubled."""
        sizes = list(self.first.shape)
        sizes[self.axis] *= 2
        return tuple(sizes)

    @property
    def inputs(self) -> tuple[Array, ...]:
        """What it takes its elements from."""
        return (self.first, self.second)

    @property
    def verb(self) -> str | None:
        """What happens to the bytes."""
        return "interleave"


@dataclass(frozen=True, slots=True)
class Expand(_OfOne):
    """A leading axis of 1 repeated `count` times."""

    source: Array
    count: int

    @property
    def shape(self) -> Shape:
        """The source's shape with `count` in front."""
        return (self.count, *self.source.shape[1:])

    @property
    def verb(self) -> str | None:
        """What happens to the bytes."""
        return "expand"


def reshape(source: Array, *shape: int) -> Array:
    """Return `source` under another shape; the same array when nothing changes."""
    if prod(shape) != prod(source.shape):
        raise ValueError(f"{source.shape} does not reshape to {shape}")
    if source.shape == shape:
        return source
    if isinstance(source, Reshape):
        return reshape(source.source, *shape)
    return Reshape(source, shape)


def permute(source: Array, *axes: int) -> Array:
    """Return `source` with its axes in another order."""
    if axes == tuple(range(len(axes))):
        return source
    return Permute(source, axes)


def cut(source: Array, axis: int, start: int, stop: int) -> Array:
    """Return a contiguous part along an axis; the same array when it is all of it."""
    if (start, stop) == (0, source.shape[axis]):
        return source
    if axis == 0 and isinstance(source, Expand):
        return expand(source.source, stop - start)
    return Slice(source, axis, start, stop)


def entry(source: Array, index: int) -> Array:
    """Return one entry along the leading axis, without that axis."""
    return reshape(cut(source, 0, index, index + 1), *source.shape[1:])


def entries(source: Array) -> list[Array]:
    """Return all entries along the leading axis, without that axis."""
    if isinstance(source, Join) and source.axis == 0:
        return [one for part in source.sources for one in entries(part)]
    return [entry(source, index) for index in range(source.shape[0])]


def every_second(source: Array, axis: int, start: int) -> Array:
    """Return the elements start, start+2, … along an axis: one side of an interleaved pair."""
    return Slice(source, axis, start, source.shape[axis], 2)


def join(sources: Sequence[Array], axis: int) -> Array:
    """Return arrays one after another along an axis."""
    dtypes = {source.dtype for source in sources}
    rest = {source.shape[:axis] + source.shape[axis + 1 :] for source in sources}
    if len(dtypes) != 1 or len(rest) != 1:
        raise ValueError(f"cannot join {[(s.dtype, s.shape) for s in sources]} on axis {axis}")
    merged: list[Array] = []
    for source in sources:
        if merged and (together := _adjacent(merged[-1], source, axis)) is not None:
            merged[-1] = together
        else:
            merged.append(source)
    return merged[0] if len(merged) == 1 else Join(tuple(merged), axis)


def _adjacent(first: Array, second: Array, axis: int) -> Array | None:
    """Return two neighbouring parts of one array as one part, else None."""
    if not (isinstance(first, Slice) and isinstance(second, Slice)):
        return None
    if (first.source, first.axis, first.step) != (second.source, axis, 1) or second.axis != axis:
        return None
    if second.step != 1 or first.stop != second.start:
        return None
    return cut(first.source, axis, first.start, second.stop)


def interleave(first: Array, second: Array, axis: int) -> Array:
    """Return rows of two arrays of one dtype and shape in turn along an axis."""
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        raise ValueError(
            f"cannot interleave {first.dtype} {first.shape} and {second.dtype} {second.shape}"
        )
    if isinstance(first, Slice) and first == replace(first, axis=axis, start=0, step=2):
        source = first.source
        if second == Slice(source, axis, 1, source.shape[axis], 2):
            return source
    return Interleave(first, second, axis)


def stack(sources: Sequence[Array]) -> Array:
    """Return arrays of one shape stacked along a new leading axis."""
    return join([reshape(source, 1, *source.shape) for source in sources], 0)


def expand(source: Array, count: int) -> Array:
    """Return `source` with its leading axis of 1 repeated; the same array for a count of 1."""
    if source.shape[0] != 1:
        raise ValueError(f"cannot expand the leading axis of {source.shape}")
    return source if count == 1 else Expand(source, count)


def pad(source: Array, axis: int, size: int) -> Array:
    """Return `source` with zeros added along an axis up to `size`."""
    missing = size - source.shape[axis]
    if missing == 0:
        return source
    zeros = list(source.shape)
    zeros[axis] = missing
    return join([source, Zeros(source.dtype, tuple(zeros))], axis)


def block_diagonal(blocks: Sequence[Array]) -> Array:
    """Return [..., Σ rows, Σ columns] with the blocks on the diagonal and zeros elsewhere."""
    if len(blocks) == 1:
        return blocks[0]
    *batch, _, _ = blocks[0].shape
    axis, rows, before = len(batch), [], 0
    columns = sum(block.shape[-1] for block in blocks)
    for block in blocks:
        height, width = block.shape[-2:]
        parts: list[Array] = [Zeros(block.dtype, (*batch, height, before))] if before else []
        parts.append(block)
        after = columns - before - width
        parts += [Zeros(block.dtype, (*batch, height, after))] if after else []
        rows.append(join(parts, axis + 1))
        before += width
    return join(rows, axis)


def verbs(array: Array) -> tuple[str, ...]:
    """Return what happens to the bytes, outermost first: `("interleave", "split")`, or `copy`."""
    found = dict.fromkeys(node.verb for node in iter_nodes(array) if node.verb is not None)
    return tuple(found) or ("copy",)


def iter_nodes(array: Array) -> Iterator[Array]:
    """Yield an array and all that it is made of, depth first, the first input before the second."""
    pending = [array]
    while pending:
        node = pending.pop()
        yield node
        pending += reversed(node.inputs)


def iter_reads(array: Array) -> Sequence[Read]:
    """Return the tensors that a move reads, each once, in order of first use."""
    reads = (node for node in iter_nodes(array) if isinstance(node, Read))
    return list({(read.path, read.tensor.name): read for read in reads}.values())
