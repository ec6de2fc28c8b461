"""The distance of deltas, without forming one: proofs of equality first, then QR.

With Δ = s·B·A, the difference of two deltas is [s1·B1, -s2·B2]·[A1; A2]. The triangles of the QR of
both joined factors keep every norm and angle, and are as small as both ranks together. Not the
Gram matrices, which are cheaper: they square the numbers, and a distance below 1e-8 of the norms
would be lost in rounding. All sums are float64.

In memory are parts of both factors of one site, and the triangles of some experts.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from inkling_runtime.adapter.boxes import Range
from inkling_runtime.adapter.comparison import Aligned, Comparison, Presence
from inkling_runtime.adapter.difference import (
    Difference,
    Distance,
    Fate,
    ModuleDifference,
    describe_difference,
)
from inkling_runtime.adapter.equality import Mask, find_equal, is_identical, is_rounded, scan
from inkling_runtime.adapter.open_files import OpenFiles
from inkling_runtime.adapter.pairs import Pair
from inkling_runtime.adapter.twins import WIDE_ELEMENTS, Twins, Wide, twins_of

_TRIANGLE_ELEMENTS = 1 << 19
"""Of the triangles that are in memory at once, for A and for B each."""


def measure_difference(
    comparison: Comparison, progress: Callable[[int], None] = lambda nbytes: None
) -> Difference:
    """Return the whole difference of two adapters; `progress` gets the bytes just compared.

    Raises:
        InklingError: a file changed or cannot be read.
    """
    modules = []
    with OpenFiles() as files:
        for aligned in comparison.sites:
            modules.append(_measure_site(aligned, files))
            progress(aligned.nbytes)
        files.require_unchanged()
    return describe_difference(comparison.first, comparison.second, modules)


def _measure_site(aligned: Aligned, files: OpenFiles) -> ModuleDifference:
    delta = measure_distance(aligned.first, aligned.second, files)
    if aligned.presence is not Presence.BOTH and delta.fate is Fate.IDENTICAL:
        delta = replace(delta, fate=Fate.EQUAL)
    if aligned.experts == 0:
        delta = replace(delta, worst_expert=None, num_experts_apart=0)
    return ModuleDifference(aligned.site, aligned.presence, aligned.experts, delta)


def measure_distance(first: Pair, second: Pair, files: OpenFiles) -> Distance:
    """Return how far two deltas are apart, both stacks of the same widths (see `Aligned`).

    Raises:
        InklingError: a file changed or cannot be read.
    """
    a, b = twins_of(first, second)
    if is_identical(a, files) and is_identical(b, files):
        return Distance(Fate.IDENTICAL)
    with np.errstate(all="ignore"):
        found = scan(a, b, files)
        if not found.is_finite.all():
            return _not_comparable(found.is_finite)
        is_equal = find_equal(a, b, found, files)
        if is_equal.all():
            return Distance(Fate.EQUAL)
        fate = Fate.ROUNDED if is_rounded(a, b, found, files) else Fate.DIFFERENT
        return _distance(a, b, is_equal, fate, files)


def _not_comparable(is_finite: Mask) -> Distance:
    return Distance(
        Fate.NOT_COMPARABLE,
        distance=None,
        relative=None,
        worst_expert=int(np.argmin(is_finite)),
        num_experts_apart=int(np.count_nonzero(~is_finite)),
    )


def _distance(a: Twins, b: Twins, is_equal: Mask, fate: Fate, files: OpenFiles) -> Distance:
    experts, rank = len(is_equal), a.first.rank
    apart, norms, dots = np.zeros(experts), np.zeros((2, experts)), np.zeros(experts)
    for some, of_a, of_b in _iter_triangles(a, b, experts, files):
        first = of_b[:, :, :rank] @ of_a[:, :, :rank].swapaxes(1, 2)
        second = of_b[:, :, rank:] @ of_a[:, :, rank:].swapaxes(1, 2)
        norms[0, some], norms[1, some] = _norms(first), _norms(second)
        apart[some] = np.where(is_equal[some], 0, _norms(first - second))
        dots[some] = (first * second).sum(axis=(1, 2))
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


def _norms(matrices: Wide) -> Wide:
    return np.asarray(np.linalg.norm(matrices, axis=(1, 2)), np.float64)


def _iter_triangles(
    a: Twins, b: Twins, experts: int, files: OpenFiles
) -> Iterator[tuple[slice, Wide, Wide]]:
    """Yield some experts with R of the QR of both A joined, and of both B; once where shared."""
    size = a.first.rank + a.second.rank
    step = max(1, _TRIANGLE_ELEMENTS // max(1, size**2))
    once = [_triangles(twins, (0, 1), files) if twins.experts == 1 else None for twins in (a, b)]
    for start in range(0, experts, step):
        some = (start, min(start + step, experts))
        of_a, of_b = (
            shared if shared is not None else _triangles(twins, some, files)
            for twins, shared in zip((a, b), once, strict=True)
        )
        yield slice(*some), of_a, of_b


def _triangles(twins: Twins, experts: Range, files: OpenFiles) -> Wide:
    """Return R [e, K, K], part by part: the triangle of what came before stands on the next rows.

    A triangle of zeros stands on the first.
    """
    first, last = experts
    size = twins.first.rank + twins.second.rank
    triangles: Wide = np.zeros((last - first, size, size))
    for part in twins.iter_parts(WIDE_ELEMENTS // 2, experts):
        some = slice(part.experts[0] - first, part.experts[1] - first)
        num_rows = part.rows[1] - part.rows[0]
        rows = np.empty((some.stop - some.start, size + num_rows, size))
        rows[:, :size] = triangles[some]
        rows[:, size:, : twins.first.rank] = twins.first.load_numbers(part, files)
        rows[:, size:, twins.first.rank :] = twins.second.load_numbers(part, files)
        triangles[some] = np.linalg.qr(rows, mode="r")
    return triangles
