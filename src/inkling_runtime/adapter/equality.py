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

from inkling_runtime.adapter.twins import SCALING_ROUNDING, StoredFactor, Twins

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


@dataclass(frozen=True, slots=True)
class Scan:
    """What both deltas hold.

    Attributes:
        used: for each adapter, which rank components [E, R] add something.
        is_finite: which experts [E] hold neither NaN nor infinity, in all four factors.
    """

    used: tuple[Mask, Mask]
    is_finite: Mask


def is_identical(twins: Twins) -> bool:
    """Return whether a factor is the same bytes for the same scaling, for every expert."""
    first, second = twins.first, twins.second
    return twins.is_alike and all(
        np.array_equal(first.entry(expert), second.entry(expert)) for expert in range(twins.experts)
    )


def scan(a: Twins, b: Twins) -> Scan:
    """Return which components and experts of two deltas hold what."""
    experts = max(a.experts, b.experts)
    used, finite = [], np.ones(experts, np.bool_)
    for of_a, of_b in ((a.first, b.first), (a.second, b.second)):
        (in_a, finite_a), (in_b, finite_b) = _scan_factor(of_a), _scan_factor(of_b)
        used.append(np.broadcast_to(in_a & in_b, (experts, in_a.shape[1])))
        finite = finite & finite_a & finite_b
    return Scan((used[0], used[1]), finite)


def _scan_factor(factor: StoredFactor) -> tuple[Mask, Mask]:
    """Return which columns are not all zero [1 or E, R], and which entries are finite."""
    count, _, rank = factor.raw.shape
    is_used, is_finite = np.zeros((count, rank), np.bool_), np.ones(count, np.bool_)
    for expert in range(count):
        for rows in factor.iter_rows(expert):
            is_used[expert] |= rows.any(axis=0)
            is_finite[expert] &= np.isfinite(rows).all()
    return is_used, is_finite


def find_equal(a: Twins, b: Twins, found: Scan) -> Mask:
    """Return for each expert whether A and s·B are the same numbers.

    Where the scalings differ, the products are compared up to the rounding of the scalings.
    """
    in_b = _EXACT if b.first.scaling == b.second.scaling else (SCALING_ROUNDING, 0.0)
    return np.fromiter(_iter_matches(a, b, found.used, (_EXACT, in_b)), np.bool_)


def is_rounded(a: Twins, b: Twins, found: Scan) -> bool:
    """Return whether one rounding of each element explains all that differs."""
    return all(_iter_matches(a, b, found.used, (_rounding_of(a), _rounding_of(b))))


def _rounding_of(twins: Twins) -> Allowance:
    """Return the allowance of the coarser dtype; nothing was rounded between two that are alike."""
    if twins.is_alike:
        return _EXACT
    first, second = twins.first, twins.second
    relative, absolute = max(_ROUNDING[first.dtype], _ROUNDING[second.dtype])
    scaling = max(abs(first.scaling), abs(second.scaling))
    return relative + SCALING_ROUNDING, absolute * scaling


def _iter_matches(
    a: Twins, b: Twins, used: tuple[Mask, Mask], allowed: tuple[Allowance, Allowance]
) -> Iterator[bool]:
    """Yield for each expert whether both factors match; a shared A is looked at once."""
    last, is_match_of_a = None, False
    for expert, components in enumerate(zip(*used, strict=True)):
        first, second = components
        if np.count_nonzero(first) != np.count_nonzero(second):
            yield False
            continue
        key = (min(expert, a.experts - 1), first.tobytes(), second.tobytes())
        if key != last:
            is_match_of_a, last = _is_match(a, expert, components, allowed[0]), key
        yield is_match_of_a and _is_match(b, expert, components, allowed[1])


def _is_match(twins: Twins, expert: int, used: tuple[Mask, Mask], allowed: Allowance) -> bool:
    relative, absolute = allowed
    for first, second in twins.iter_rows(expert):
        one, other = first[:, used[0]], second[:, used[1]]
        if allowed == _EXACT:
            is_match = np.array_equal(one, other)
        else:
            limit = relative * np.maximum(abs(one), abs(other)) + absolute
            is_match = bool((abs(one - other) <= limit).all())
        if not is_match:
            return False
    return True
