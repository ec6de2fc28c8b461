"""Proofs that two deltas are the same, from the elements of their factors.

Not a distance: what is not proven here may still be equal, as with the rank components in another
order. A component whose row of A or column of B is zero adds nothing, so it is left out on either
side; that covers a padded rank, and gate and up that were tied over a doubled one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from inkling_runtime.adapter.open_files import OpenFiles
from inkling_runtime.adapter.rounding import RawArray
from inkling_runtime.adapter.transpose import contiguous
from inkling_runtime.adapter.twins import (
    SCALING_ROUNDING,
    WIDE_ELEMENTS,
    Part,
    StoredFactor,
    Twins,
    iter_parts,
    num_raw_elements,
)

Mask: TypeAlias = NDArray[np.bool_]

Allowance: TypeAlias = tuple[float, float]
"""How far two elements may be apart: relative to the larger one, and absolute."""

_EXACT: Allowance = (0.0, 0.0)

_ROUNDING = {
    "F64": (2.0**-53, 2.0**-1074),
    "F32": (2.0**-24, 2.0**-150),
    "F16": (2.0**-11, 2.0**-25),
    "BF16": (2.0**-8, 2.0**-134),
}
"""The most that one rounding changes a number: relative, and absolute below the normal range."""

_BITS = {"BF16": (0x7FFF, 0x7F80), "F16": (0x7FFF, 0x7C00), "F32": (0x7FFF_FFFF, 0x7F80_0000)}
"""All bits but the sign, and those of infinity."""

_PLAIN_SCALINGS = (1e-200, 1e200)
"""Between them, no product with a float of 32 bits leaves float64 or becomes zero."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What both deltas hold.

    Attributes:
        used: for each adapter, which rank components [E, R] add something.
        is_finite: which experts [E] hold neither NaN nor infinity, in all four factors.
    """

    used: tuple[Mask, Mask]
    is_finite: Mask


def is_identical(twins: Twins, files: OpenFiles) -> bool:
    """Return whether a factor is the same bytes for the same scaling, for every expert."""
    first, second = twins.first, twins.second
    if not twins.is_alike or first.rank != second.rank:
        return False
    if first.array == second.array:
        return True
    return all(
        _is_same(first.load(part, files), second.load(part, files))
        for part in twins.iter_parts(num_raw_elements(first.dtype))
    )


def _is_same(first: RawArray, second: RawArray) -> bool:
    """Return whether two arrays hold the same bytes; a leading 1 is for all experts."""
    order = sorted(range(first.ndim), key=lambda axis: -first.strides[axis])
    one, other = contiguous(first.transpose(order)), contiguous(second.transpose(order))
    if one.shape == other.shape and one.nbytes % 8 == 0:
        one, other = one.reshape(-1).view(np.uint64), other.reshape(-1).view(np.uint64)
    return bool((one == other).all())


def scan(a: Twins, b: Twins, files: OpenFiles) -> Scan:
    """Return which components and experts of two deltas hold what."""
    experts = max(a.experts, b.experts)
    used, finite = [], np.ones(experts, np.bool_)
    for of_a, of_b in ((a.first, b.first), (a.second, b.second)):
        (in_a, finite_a), (in_b, finite_b) = _scan_factor(of_a, files), _scan_factor(of_b, files)
        used.append(np.broadcast_to(in_a & in_b, (experts, in_a.shape[1])))
        finite = finite & finite_a & finite_b
    return Scan((used[0], used[1]), finite)


def _scan_factor(factor: StoredFactor, files: OpenFiles) -> tuple[Mask, Mask]:
    """Return which columns are not all zero [1 or E, R], and which entries are finite."""
    is_used = np.zeros((factor.experts, factor.rank), np.bool_)
    is_finite = np.ones(factor.experts, np.bool_)
    for part in iter_parts((factor,), WIDE_ELEMENTS, (0, factor.experts)):
        used, finite = _scan_part(factor, part, files)
        is_used[slice(*part.experts)] |= used
        is_finite[slice(*part.experts)] &= finite
    return is_used, is_finite


def _scan_part(factor: StoredFactor, part: Part, files: OpenFiles) -> tuple[Mask, Mask]:
    smallest, largest = _PLAIN_SCALINGS
    if factor.dtype in _BITS and smallest < abs(factor.scaling) < largest:
        all_but_sign, infinity = _BITS[factor.dtype]
        bits = factor.load(part, files)
        most = (bits & bits.dtype.type(all_but_sign)).max(axis=1, initial=0)
        return np.asarray(most != 0), np.asarray((most < infinity).all(axis=1))
    numbers = factor.load_numbers(part, files)
    return np.asarray(numbers.any(axis=1)), np.asarray(np.isfinite(numbers).all(axis=(1, 2)))


def find_equal(a: Twins, b: Twins, found: Scan, files: OpenFiles) -> Mask:
    """Return for each expert whether A and s·B are the same numbers.

    Where the scalings differ, the products are compared up to the rounding of the scalings.
    """
    in_b = _EXACT if b.first.scaling == b.second.scaling else (SCALING_ROUNDING, 0.0)
    places = _Places.of(found.used)
    is_equal = places.is_alike.copy()
    for twins, allowed in ((a, _EXACT), (b, in_b)):
        for experts, is_match in _iter_matches(twins, places, allowed, files):
            is_equal[experts] &= is_match
    return is_equal


def is_rounded(a: Twins, b: Twins, found: Scan, files: OpenFiles) -> bool:
    """Return whether one rounding of each element explains all that differs."""
    places = _Places.of(found.used)
    return bool(places.is_alike.all()) and all(
        bool(is_match.all())
        for twins in (a, b)
        for _, is_match in _iter_matches(twins, places, _rounding_of(twins), files)
    )


def _rounding_of(twins: Twins) -> Allowance:
    """Return the allowance of the coarser dtype; nothing was rounded between two that are alike."""
    if twins.is_alike:
        return _EXACT
    first, second = twins.first, twins.second
    relative, absolute = max(_ROUNDING[first.dtype], _ROUNDING[second.dtype])
    scaling = max(abs(first.scaling), abs(second.scaling))
    return relative + SCALING_ROUNDING, absolute * scaling


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the used components of each expert are, in both adapters.

    Attributes:
        first: [E, K], positions in the first adapter, in order; 0 where there are fewer than K.
        second: the same in the second.
        is_used: [E, K], which of the K positions count.
        is_alike: [E], whether both have as many components.
    """

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    is_used: Mask
    is_alike: Mask

    @classmethod
    def of(cls, used: tuple[Mask, Mask]) -> "_Places":
        """Return the places of what is used."""
        counts, others = (np.count_nonzero(one, axis=1) for one in used)
        most = int(np.minimum(counts, others).max(initial=0))
        first, second = (np.argsort(~one, axis=1, kind="stable")[:, :most] for one in used)
        is_used = np.arange(most) < np.minimum(counts, others)[:, None]
        return cls(first, second, is_used, counts == others)

    def groups(self, experts: slice) -> Iterator[tuple["_Places", Mask]]:
        """Yield the distinct rows among some experts, one at a time, and which experts have it."""
        rows = np.concatenate([self.first[experts], self.second[experts], self.is_used[experts]], 1)
        _, firsts, numbers = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        for number, index in enumerate(firsts):
            yield self.at(slice(index, index + 1)), numbers.reshape(-1) == number

    def at(self, experts: slice) -> "_Places":
        """Return those of some experts."""
        return _Places(
            self.first[experts], self.second[experts], self.is_used[experts], self.is_alike[experts]
        )


def _iter_matches(
    twins: Twins, places: _Places, allowed: Allowance, files: OpenFiles
) -> Iterator[tuple[slice, Mask]]:
    """Yield experts and whether a part of the factor matches in each."""
    for part in twins.iter_parts(WIDE_ELEMENTS):
        if twins.experts > 1:
            experts = slice(*part.experts)
            yield experts, _find_matches(twins, part, places.at(experts), allowed, files)
            continue
        everyone = slice(0, len(places.is_alike))
        is_match = np.ones(len(places.is_alike), np.bool_)
        for group, members in places.groups(everyone):
            is_match[members] = _find_matches(twins, part, group, allowed, files)
        yield everyone, is_match


def _find_matches(
    twins: Twins, part: Part, places: _Places, allowed: Allowance, files: OpenFiles
) -> Mask:
    """Return for each expert of a part whether its used components match."""
    first, second = twins.first, twins.second
    unused = ~places.is_used[:, None, :]
    if twins.is_alike and allowed == _EXACT:
        one = _pick(first.load(part, files), places.first)
        other = _pick(second.load(part, files), places.second)
        is_match: Mask = ((one == other) | unused).all(axis=(1, 2))
        if is_match.all():
            return is_match
    wide = _pick(first.load_numbers(part, files), places.first)
    other_wide = _pick(second.load_numbers(part, files), places.second)
    relative, absolute = allowed
    limit = relative * np.maximum(abs(wide), abs(other_wide)) + absolute
    is_near = (abs(wide - other_wide) <= limit) | unused
    return np.asarray(is_near.all(axis=(1, 2)))


def _pick(block: RawArray, places: NDArray[np.intp]) -> RawArray:
    """Return the components [e, rows, K] of a block [1 or e, rows, R]."""
    first = places[0]
    if not (places == first).all():
        shape = (len(places), *block.shape[1:])
        return np.take_along_axis(np.broadcast_to(block, shape), places[:, None, :], axis=2)
    start = int(first[0]) if len(first) else 0
    if np.array_equal(first, np.arange(start, start + len(first))):
        return block[:, :, start : start + len(first)]
    return block[:, :, first]
