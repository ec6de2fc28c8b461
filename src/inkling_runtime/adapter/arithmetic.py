"""Lazy arrays that compute: scaled, mixed along the rank, multiplied, added.

Beside `moves`, which only moves elements. Each rounds exactly once, to nearest even, in the dtype
that it says; what comes before that is float64, or float32 where the result is narrower.
"""

from dataclasses import dataclass
from typing import Any

from inkling_runtime.adapter.moves import Array, Shape


@dataclass(frozen=True, slots=True)
class Scale:
    """Elements times a factor, in a dtype of their own: a cast where the factor is 1."""

    source: Array
    factor: float
    dtype: str

    @property
    def shape(self) -> Shape:
        """The source's shape."""
        return self.source.shape

    @property
    def inputs(self) -> tuple[Array, ...]:
        """What it takes its elements from."""
        return (self.source,)

    @property
    def verb(self) -> str | None:
        """What happens to the elements."""
        return "cast" if self.factor == 1 else "scale"


@dataclass(frozen=True, slots=True, eq=False)
class Coefficients:
    """A small matrix of float64 [new, old], or one for each expert [E, new, old]."""

    values: Any

    @property
    def shape(self) -> Shape:
        """The sizes of the matrix or stack."""
        return tuple(self.values.shape)


@dataclass(frozen=True, slots=True)
class Mix:
    """New rank components, each a sum of the old ones: C·A, or B·Cᵀ where `axis` is the last.

    Attributes:
        source: [..., old, in] where the rank is the last but one axis, [..., out, old] where last.
        coefficients: C; where it has experts, so has the source, or 1 for all.
        axis: of the rank, the last or the last but one.
        dtype: of the result.
    """

    source: Array
    coefficients: Coefficients
    axis: int
    dtype: str

    @property
    def shape(self) -> Shape:
        """The source's shape with the new rank, and the experts of the coefficients."""
        sizes = list(self.source.shape)
        sizes[self.axis] = self.coefficients.shape[-2]
        if len(self.coefficients.shape) == 3:
            sizes[0] = max(sizes[0], self.coefficients.shape[0])
        return tuple(sizes)

    @property
    def inputs(self) -> tuple[Array, ...]:
        """What it takes its elements from."""
        return (self.source,)

    @property
    def verb(self) -> str | None:
        """What happens to the elements."""
        return "mix"


@dataclass(frozen=True, slots=True)
class Product:
    """A delta: scaling · B·A, [out, in] or [E, out, in] (a leading 1 is for all experts).

    `dtype` is F32 or F64, in which it is computed.
    """

    a: Array
    b: Array
    scaling: float
    dtype: str

    @property
    def shape(self) -> Shape:
        """The rows of B by the columns of A."""
        batch = tuple(map(max, self.a.shape[:-2], self.b.shape[:-2]))
        return (*batch, self.b.shape[-2], self.a.shape[-1])

    @property
    def inputs(self) -> tuple[Array, ...]:
        """What it takes its elements from."""
        return (self.a, self.b)

    @property
    def verb(self) -> str | None:
        """What happens to the elements."""
        return "multiply"


@dataclass(frozen=True, slots=True)
class Sum:
    """A base weight plus deltas (F32 or F64) of its shape, rounded once in the base's dtype."""

    base: Array
    deltas: tuple[Array, ...]

    @property
    def dtype(self) -> str:
        """The base's dtype."""
        return self.base.dtype

    @property
    def shape(self) -> Shape:
        """The base's shape."""
        return self.base.shape

    @property
    def inputs(self) -> tuple[Array, ...]:
        """What it takes its elements from."""
        return (self.base, *self.deltas)

    @property
    def verb(self) -> str | None:
        """What happens to the elements."""
        return "add"


def scale(source: Array, factor: float, dtype: str | None = None) -> Array:
    """Return `source` times a factor in a dtype, its own by default; the same array for 1 in it.

    Where the source is itself scaled, both factors are applied before the one rounding.
    """
    if isinstance(source, Scale):
        return scale(source.source, source.factor * factor, dtype or source.dtype)
    dtype = dtype or source.dtype
    return source if (factor, dtype) == (1, source.dtype) else Scale(source, factor, dtype)


def cast(source: Array, dtype: str) -> Array:
    """Return `source` in another dtype, rounded to nearest even."""
    return scale(source, 1, dtype)
