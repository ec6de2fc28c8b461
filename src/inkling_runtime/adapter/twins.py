"""The same factor of two adapters, read a part at a time: some experts, some rows.

Memory is that of a few parts, whatever the size of the factor. Elements come as stored until they
must be numbers, which take four times as much.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from inkling_runtime.adapter.arrays import load_box
from inkling_runtime.adapter.boxes import Range
from inkling_runtime.adapter.moves import Array, Permute, iter_nodes
from inkling_runtime.adapter.open_files import OpenFiles
from inkling_runtime.adapter.pairs import Pair
from inkling_runtime.adapter.rounding import RawArray, widen
from inkling_runtime.adapter.safetensors_file import DTYPE_BITS
from inkling_runtime.adapter.transpose import contiguous

Wide: TypeAlias = NDArray[np.float64]

SCALING_ROUNDING = 2.0**-50
"""A scaling is a quotient of the config's numbers, rounded: closer ones count as the same."""

RAW_BYTES = 4 << 20
"""What is compared at once as stored."""
WIDE_ELEMENTS = 1 << 19
"""What is compared at once as numbers."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some experts and some rows of a factor."""

    experts: Range
    rows: Range


@dataclass(frozen=True, slots=True)
class StoredFactor:
    """A or B of a site, and what multiplies each element.

    Both are seen as [1 or E, width, R]; A is stored with its rank before its width.
    """

    array: Array
    scaling: float
    is_a: bool

    @property
    def dtype(self) -> str:
        """The safetensors dtype."""
        return self.array.dtype

    @property
    def experts(self) -> int:
        """E; 1 where all experts share the factor."""
        return self.array.shape[0]

    @property
    def width(self) -> int:
        """Rows of B, columns of A."""
        return self.array.shape[2 if self.is_a else 1]

    @property
    def rank(self) -> int:
        """R."""
        return self.array.shape[1 if self.is_a else 2]

    @property
    def is_split_by_rows(self) -> bool:
        """Whether rows lie further apart in the file than experts, as PEFT packs them."""
        return any(
            len(node.axes) == 3 and node.axes[0] > node.axes[2 if self.is_a else 1]
            for node in iter_nodes(self.array)
            if isinstance(node, Permute)
        )

    def load(self, part: Part, files: OpenFiles) -> RawArray:
        """Return the stored elements of a part, [1 or e, rows, R], perhaps as a view."""
        raw = self._load_as_stored(part, files)
        return raw.swapaxes(1, 2) if self.is_a else raw

    def load_numbers(self, part: Part, files: OpenFiles) -> Wide:
        """Return a part as numbers, the scaling multiplied in."""
        raw = contiguous(self._load_as_stored(part, files))
        numbers = widen(raw, self.dtype, "F64").astype(np.float64, copy=False)
        numbers *= self.scaling
        return numbers.swapaxes(1, 2) if self.is_a else numbers

    def _load_as_stored(self, part: Part, files: OpenFiles) -> RawArray:
        experts = (0, 1) if self.experts == 1 else part.experts
        components = (0, self.rank)
        box = (components, part.rows) if self.is_a else (part.rows, components)
        return load_box(self.array, (experts, *box), files)


@dataclass(frozen=True, slots=True)
class Twins:
    """The same factor of both adapters, of the same width."""

    first: StoredFactor
    second: StoredFactor

    @property
    def experts(self) -> int:
        """E; 1 where all experts share the factor, on both sides."""
        return max(self.first.experts, self.second.experts)

    @property
    def is_alike(self) -> bool:
        """Whether both are stored in one dtype for one scaling."""
        first, second = self.first, self.second
        return (first.dtype, first.scaling) == (second.dtype, second.scaling)

    def iter_parts(self, num_elements: int, experts: Range | None = None) -> Iterator[Part]:
        """Yield parts of at most so many elements that cover some experts, all by default."""
        return iter_parts((self.first, self.second), num_elements, experts or (0, self.experts))


def iter_parts(
    factors: tuple[StoredFactor, ...], num_elements: int, experts: Range
) -> Iterator[Part]:
    """Yield parts that cover some experts of factors of one width, as the files are read best.

    The parts of one expert come in the order of its rows.
    """
    first, last = experts
    width, rank = factors[0].width, max(factor.rank for factor in factors)
    if any(factor.is_split_by_rows for factor in factors):
        step = max(1, num_elements // max(1, rank * (last - first)))
        for rows in _ranges((0, width), step):
            yield Part(experts, rows)
        return
    step = num_elements // max(1, width * rank)
    for some in _ranges(experts, max(1, step)):
        for rows in _ranges((0, width), width if step else max(1, num_elements // max(1, rank))):
            yield Part(some, rows)


def _ranges(whole: Range, step: int) -> Iterator[Range]:
    start, stop = whole
    for begin in range(start, stop, max(1, step)):
        yield begin, min(begin + step, stop)


def twins_of(first: Pair, second: Pair) -> tuple[Twins, Twins]:
    """Return A and B of two stacks. B has the scaling."""
    scaling = second.scaling
    if math.isclose(first.scaling, scaling, rel_tol=SCALING_ROUNDING, abs_tol=0.0):
        scaling = first.scaling
    return (
        Twins(StoredFactor(first.a, 1.0, is_a=True), StoredFactor(second.a, 1.0, is_a=True)),
        Twins(
            StoredFactor(first.b, first.scaling, is_a=False),
            StoredFactor(second.b, scaling, is_a=False),
        ),
    )


def num_raw_elements(dtype: str) -> int:
    """Return how many elements are compared at once as stored."""
    return RAW_BYTES // max(DTYPE_BITS[dtype] // 8, 1)
