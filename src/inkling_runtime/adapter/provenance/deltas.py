"""Whether the deltas of a written adapter are those that are expected of it, site by site.

Both sides are read through the tables of their own dialects, so that what is compared is what each
consumer would make of it. From headers alone where nothing but stored bytes went from one to the
other; else from the elements.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from inkling_runtime.adapter.adapter import Adapter, require_understood
from inkling_runtime.adapter.comparison import Aligned, align_pairs
from inkling_runtime.adapter.convert.options import Options, apply_options
from inkling_runtime.adapter.difference import Distance, Fate
from inkling_runtime.adapter.distance import measure_distance
from inkling_runtime.adapter.equality import find_equal, scan
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.moves import (
    Array,
    Expand,
    Join,
    Permute,
    Read,
    Reshape,
    Slice,
    cut,
    join,
    permute,
    reshape,
)
from inkling_runtime.adapter.open_files import OpenFiles
from inkling_runtime.adapter.pairs import with_scaling
from inkling_runtime.adapter.provenance.proven import Proven
from inkling_runtime.adapter.site_pairs import HEADERS_ONLY, SitePairs, gather_pairs
from inkling_runtime.adapter.sites import HEAD_SITE, Site
from inkling_runtime.adapter.twins import SCALING_ROUNDING, twins_of


def pairs_of(adapter: Adapter, spec: ModelSpec | None) -> SitePairs:
    """Return the factors of an adapter, from headers alone.

    Raises:
        InklingError: a tensor is not understood, or a size is needed that only the model tells.
    """
    require_understood(adapter)
    return gather_pairs(adapter, spec, HEADERS_ONLY)


@dataclass(frozen=True, slots=True)
class Expectation:
    """The factors that a written adapter should have, beside those that it has.

    Attributes:
        expected: before the options; groups that are dropped may be among them.
        found: read from the result.
        options: what was asked for beyond the dialect.
        spec: the base model, if it is known.
    """

    expected: SitePairs
    found: SitePairs
    options: Options
    spec: ModelSpec | None

    def sites(self) -> tuple[Aligned, ...]:
        """Return all sites, what is expected first."""
        return align_pairs(self._kept(), self.found, self.spec)

    def rounded(self, site: Site) -> Aligned:
        """Return a site with what is expected cast as asked for, for the scaling that was found."""
        found, cast_only = self.found[site], Options(dtype=self.options.dtype)
        expected = apply_options({site: self._kept()[site]}, cast_only)[site]
        if found.scaling:
            expected = with_scaling(expected, found.scaling)
        (aligned,) = align_pairs({site: expected}, {site: found}, self.spec)
        return aligned

    def _kept(self) -> SitePairs:
        """Return what is expected without what the user let go."""
        dropped = self.options.dropped
        kept = {s: pair for s, pair in self.expected.items() if s.kind.group not in dropped}
        head, found = kept.get(HEAD_SITE), self.found.get(HEAD_SITE)
        if self.options.force and head is not None and found is not None:
            rows = min(head.b.shape[0], found.b.shape[0])
            kept[HEAD_SITE] = replace(head, b=cut(head.b, 0, 0, rows))
        return kept


def is_same_by_moves(aligned: Aligned, origins: Mapping[str, Array]) -> bool:
    """Return whether the second pair is the first, given what each of its tensors was made of.

    Headers alone: proves names, layout and scaling, not the bytes.
    """
    first, second = aligned.first, aligned.second
    return (
        math.isclose(first.scaling, second.scaling, rel_tol=SCALING_ROUNDING, abs_tol=0.0)
        and _once(first.a) == _once(_traced(second.a, origins))
        and _once(first.b) == _once(_traced(second.b, origins))
    )


def _once(array: Array) -> Array:
    """Return what all entries along the leading axis are made of, where they are the same."""
    if isinstance(array, Expand):
        return array.source
    if isinstance(array, Join) and array.axis == 0 and array.sources[0].shape[0] == 1:
        first = array.sources[0]
        return first if all(source == first for source in array.sources) else array
    return array


def _traced(array: Array, origins: Mapping[str, Array]) -> Array:
    """Return an array over the result's tensors as one over what they were made of."""
    if isinstance(array, Read):
        return origins.get(array.tensor.name, array)
    if isinstance(array, Reshape):
        return reshape(_traced(array.source, origins), *array.shape)
    if isinstance(array, Permute):
        return permute(_traced(array.source, origins), *array.axes)
    if isinstance(array, Slice):
        return _traced_slice(array, origins)
    if isinstance(array, Join):
        return join([_traced(source, origins) for source in array.sources], array.axis)
    return array


def _traced_slice(array: Slice, origins: Mapping[str, Array]) -> Array:
    source = _traced(array.source, origins)
    if array.step == 1:
        return cut(source, array.axis, array.start, array.stop)
    return replace(array, source=source)


def prove_delta(
    aligned: Aligned, expectation: Expectation, files: OpenFiles, *, may_round: bool
) -> tuple[Proven, Distance]:
    """Return what is shown of a site by its elements, NOTHING where they differ.

    Where numbers vanish in rounding, components vanish with them, and NaN has no distance: then
    the result is held against the expected factors rounded once more.

    Raises:
        InklingError: a file changed or cannot be read.
    """
    distance = measure_distance(aligned.first, aligned.second, files)
    proven = _PROVEN.get(distance.fate, Proven.NOTHING)
    if proven is Proven.ROUNDED and not may_round:
        return Proven.NOTHING, distance
    if distance.fate is Fate.NOT_COMPARABLE:
        return _prove_numbers(aligned, expectation, files, may_round=may_round), distance
    if distance.fate is Fate.DIFFERENT and may_round and aligned.site in expectation.expected:
        rounded = expectation.rounded(aligned.site)
        again = measure_distance(rounded.first, rounded.second, files)
        if again.fate in _PROVEN:
            return Proven.RE_EVALUATED, distance
    return proven, distance


def _prove_numbers(
    aligned: Aligned, expectation: Expectation, files: OpenFiles, *, may_round: bool
) -> Proven:
    """Return what is shown of factors with NaN or infinity: whether they are the same bits."""
    if aligned.site in expectation.expected:
        aligned = expectation.rounded(aligned.site)
    a, b = twins_of(aligned.first, aligned.second)
    with np.errstate(all="ignore"):
        is_equal = find_equal(a, b, scan(a, b, files), files)
    if not is_equal.all():
        return Proven.NOTHING
    return Proven.ROUNDED if may_round else Proven.EQUAL


def is_projection(aligned: Aligned, files: OpenFiles) -> bool:
    """Return whether the second delta is what an orthogonal projection leaves of the first.

    That is what the best approximation of a lower rank is, over one basis or several: what is cut
    stands at right angles to what is kept, so ⟨Δ, Δ'⟩ = ‖Δ'‖². Each of K components is rounded
    twice, which moves both sides by 2·unit·√K·‖Δ‖² at most. Where elements may be too small for
    that, in F16 and in deltas next to zero, nothing is asked.

    Raises:
        InklingError: a file changed or cannot be read.
    """
    first, second = aligned.first, aligned.second
    unit = max(_UNITS.get(factor.dtype, 1.0) for factor in (second.a, second.b))
    distance = measure_distance(first, second, files)
    before, after = distance.norms or (0.0, 0.0)
    if unit == 1.0 or before < _SMALL:
        return True
    dot = (distance.cosine or 0.0) * before * after
    rounding = 2.1 * unit * math.sqrt(second.rank)
    return abs(dot - after**2) <= (rounding + rounding**2 + 1e-12) * before**2


_UNITS = {"BF16": 2.0**-8, "F32": 2.0**-24, "F64": 2.0**-53}
_SMALL = 1e-60
"""Of a delta this small, factors of 32 bits may be rounded by more than their unit."""


_PROVEN = {
    Fate.IDENTICAL: Proven.BYTES,
    Fate.EQUAL: Proven.EQUAL,
    Fate.ROUNDED: Proven.ROUNDED,
}
