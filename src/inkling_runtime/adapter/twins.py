"""The same factor of two adapters in memory, and its rows as float64, a block at a time.

As stored until a row is asked for: both adapters' factors of one site are in memory at once, and
as float64 they would take four times as much.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from inkling_runtime.adapter.arrays import RawArray, load, typed
from inkling_runtime.adapter.factors import to_float32
from inkling_runtime.adapter.pairs import Pair

Wide: TypeAlias = NDArray[np.float64]

SCALING_ROUNDING = 2.0**-50
"""A scaling is a quotient of the config's numbers, rounded: closer ones count as the same."""

_BLOCK_ROWS = 8192


@dataclass(frozen=True, slots=True)
class StoredFactor:
    """A or B of a site: elements [1 or E, width, R] as stored, and what multiplies each."""

    raw: RawArray
    dtype: str
    scaling: float

    def entry(self, expert: int) -> RawArray:
        """Return the stored elements of an expert, [width, R]."""
        entry: RawArray = self.raw[min(expert, len(self.raw) - 1)]
        return entry

    def iter_rows(self, expert: int) -> Iterator[Wide]:
        """Yield an expert's rows as numbers, a block at a time."""
        rows = self.entry(expert)
        for start in range(0, len(rows), _BLOCK_ROWS):
            yield _widen(rows[start : start + _BLOCK_ROWS], self.dtype) * self.scaling


def _widen(array: RawArray, dtype: str) -> Wide:
    numbers = to_float32(array, dtype) if dtype == "BF16" else typed(array, dtype)
    return numbers.astype(np.float64)


@dataclass(frozen=True, slots=True)
class Twins:
    """The same factor of both adapters."""

    first: StoredFactor
    second: StoredFactor

    @property
    def experts(self) -> int:
        """E; 1 where all experts share the factor, on both sides."""
        return max(len(self.first.raw), len(self.second.raw))

    @property
    def is_alike(self) -> bool:
        """Whether both are stored in one dtype for one scaling."""
        first, second = self.first, self.second
        return (first.dtype, first.scaling) == (second.dtype, second.scaling)

    def iter_rows(self, expert: int) -> Iterator[tuple[Wide, Wide]]:
        """Yield the same rows of both."""
        return zip(self.first.iter_rows(expert), self.second.iter_rows(expert), strict=True)


def load_twins(first: Pair, second: Pair) -> tuple[Twins, Twins]:
    """Return A and B of two stacks. B has the scaling; A has its rank last, as B does.

    Raises:
        InklingError: a file changed or cannot be read.
    """
    scaling = second.scaling
    if math.isclose(first.scaling, scaling, rel_tol=SCALING_ROUNDING, abs_tol=0.0):
        scaling = first.scaling
    return (
        Twins(_load_a(first), _load_a(second)),
        Twins(
            StoredFactor(load(first.b), first.b.dtype, first.scaling),
            StoredFactor(load(second.b), second.b.dtype, scaling),
        ),
    )


def _load_a(pair: Pair) -> StoredFactor:
    return StoredFactor(load(pair.a).swapaxes(1, 2), pair.a.dtype, 1.0)
