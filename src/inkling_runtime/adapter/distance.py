"""The distance of deltas, without forming one: proofs of equality first, then QR.

With Δ = s·B·A, the difference of two deltas is [s1·B1, -s2·B2]·[A1; A2]. The triangles of the QR of
both joined factors keep every norm and angle, and are as small as both ranks together. Not the
Gram matrices, which are cheaper: they square the numbers, and a distance below 1e-8 of the norms
would be lost in rounding. All sums are float64.

In memory are the factors of one site of both adapters as stored, and a block of rows as float64.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from inkling_runtime.adapter.comparison import Aligned, Comparison, Presence
from inkling_runtime.adapter.difference import (
    Difference,
    Distance,
    Fate,
    ModuleDifference,
    describe_difference,
)
from inkling_runtime.adapter.equality import Mask, find_equal, is_identical, is_rounded, scan
from inkling_runtime.adapter.pairs import Pair
from inkling_runtime.adapter.twins import Twins, Wide, load_twins


def measure_difference(
    comparison: Comparison, progress: Callable[[int], None] = lambda nbytes: None
) -> Difference:
    """Return the whole difference of two adapters; `progress` gets the bytes just compared.

    Raises:
        InklingError: a file changed or cannot be read.
    """
    modules = []
    for aligned in comparison.sites:
        modules.append(_measure_site(aligned))
        progress(aligned.nbytes)
    return describe_difference(comparison.first, comparison.second, modules)


def _measure_site(aligned: Aligned) -> ModuleDifference:
    delta = measure_distance(aligned.first, aligned.second)
    if aligned.presence is not Presence.BOTH and delta.fate is Fate.IDENTICAL:
        delta = replace(delta, fate=Fate.EQUAL)
    if aligned.experts == 0:
        delta = replace(delta, worst_expert=None, num_experts_apart=0)
    return ModuleDifference(aligned.site, aligned.presence, aligned.experts, delta)


def measure_distance(first: Pair, second: Pair) -> Distance:
    """Return how far two deltas are apart, both stacks of the same widths (see `Aligned`).

    Raises:
        InklingError: a file changed or cannot be read.
    """
    a, b = load_twins(first, second)
    if is_identical(a) and is_identical(b):
        return Distance(Fate.IDENTICAL)
    with np.errstate(all="ignore"):
        found = scan(a, b)
        if not found.is_finite.all():
            return _not_comparable(found.is_finite)
        is_equal = find_equal(a, b, found)
        if is_equal.all():
            return Distance(Fate.EQUAL)
        fate = Fate.ROUNDED if is_rounded(a, b, found) else Fate.DIFFERENT
        return _distance(a, b, is_equal, fate)


def _not_comparable(is_finite: Mask) -> Distance:
    return Distance(
        Fate.NOT_COMPARABLE,
        distance=None,
        relative=None,
        worst_expert=int(np.argmin(is_finite)),
        num_experts_apart=int(np.count_nonzero(~is_finite)),
    )


def _distance(a: Twins, b: Twins, is_equal: Mask, fate: Fate) -> Distance:
    experts, rank = len(is_equal), a.first.raw.shape[2]
    apart, norms, dots = np.zeros(experts), np.zeros((2, experts)), np.zeros(experts)
    triangles = zip(_iter_triangles(a, experts), _iter_triangles(b, experts), strict=True)
    for expert, (of_a, of_b) in enumerate(triangles):
        first = of_b[:, :rank] @ of_a[:, :rank].T
        second = of_b[:, rank:] @ of_a[:, rank:].T
        norms[:, expert] = np.linalg.norm(first), np.linalg.norm(second)
        apart[expert] = 0 if is_equal[expert] else np.linalg.norm(first - second)
        dots[expert] = np.vdot(first, second)
    is_finite = np.isfinite(dots) & np.isfinite(norms).all(axis=0)
    if not is_finite.all():
        return _not_comparable(is_finite)
    distance = float(np.linalg.norm(apart))
    one, other = (float(norm) for norm in np.linalg.norm(norms, axis=1))
    cosine = float(dots.sum()) / one / other if one and other else None
    return Distance(
        fate,
        distance,
        relative=distance / max(one, other) if one or other else 0.0,
        norms=(one, other),
        cosine=cosine if cosine is None else min(max(cosine, -1.0), 1.0),
        worst_expert=int(np.argmax(apart)),
        num_experts_apart=int(np.count_nonzero(~is_equal)),
    )


def _iter_triangles(twins: Twins, experts: int) -> Iterator[Wide]:
    """Yield R of the QR of both factors joined, for each expert; once where all share them."""
    triangle = _triangle(twins, 0)
    for expert in range(experts):
        if expert and twins.experts > 1:
            triangle = _triangle(twins, expert)
        yield triangle


def _triangle(twins: Twins, expert: int) -> Wide:
    """Return R, block by block: the triangle of what came before stands on top of the next rows."""
    triangle: Wide = np.empty((0, twins.first.raw.shape[2] + twins.second.raw.shape[2]))
    for both in twins.iter_rows(expert):
        rows = np.concatenate([triangle, np.concatenate(both, axis=1)])
        triangle = np.asarray(np.linalg.qr(rows, mode="r"))
    return triangle
