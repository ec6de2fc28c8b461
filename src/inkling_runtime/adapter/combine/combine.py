"""The factors of a weighted sum of deltas: Σ wᵢ·sᵢ·Bᵢ·Aᵢ as one pair for each site.

Ranks are put beside one another, A = [A₁; A₂] and B = [B₁·w₁s₁/s, B₂·w₂s₂/s] over one scaling s,
so the sum is exact wherever the ratios are powers of two; any other ratio rounds its B once. Not
an average, and nothing is trimmed: that is what `resize` is for.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from inkling_runtime.adapter.adapter import Adapter
from inkling_runtime.adapter.arithmetic import cast, scale
from inkling_runtime.adapter.dialects.dialect import Dialect
from inkling_runtime.adapter.moves import join, pad
from inkling_runtime.adapter.pairs import Form, Pair, expand_experts, tie, to_stack, zero_like
from inkling_runtime.adapter.resize.groups import is_fused
from inkling_runtime.adapter.safetensors_file import DTYPE_BITS
from inkling_runtime.adapter.site_pairs import GATED, Contents, SitePairs
from inkling_runtime.adapter.sites import HEAD_SITE, Site
from inkling_runtime.adapter.twins import SCALING_ROUNDING


@dataclass(frozen=True, slots=True)
class Part:
    """An adapter, its factors by site, and what its deltas are multiplied with."""

    adapter: Adapter
    pairs: SitePairs
    weight: float


def common_dtype(parts: Sequence[Part]) -> str:
    """Return the narrowest dtype that holds every element of all factors."""
    found = {a.dtype for part in parts for p in part.pairs.values() for a in (p.a, p.b)}
    return "F32" if found == {"BF16", "F16"} else max(sorted(found), key=DTYPE_BITS.__getitem__)


def combine_pairs(
    parts: Sequence[Part], dialect: Dialect, contents: Contents, dtype: str
) -> SitePairs:
    """Return the factors of Σ wᵢ·ΔWᵢ by site, all in one dtype.

    What one adapter lacks has the others' factors alone. Gate and up that the target holds over
    one A come so already. The adapters' widths must be the same (see `comparison`).
    """
    prepared = [_prepared(part, dialect, contents, dtype) for part in parts]
    combined: SitePairs = {}
    for site in sorted({site for pairs in prepared for site in pairs}):
        combined[site] = _sum(site, [pairs[site] for pairs in prepared if site in pairs], dtype)
    return combined


def _prepared(part: Part, dialect: Dialect, contents: Contents, dtype: str) -> SitePairs:
    """Return a part's factors in the dtype, weighted, gate and up over one A where that is due."""
    pairs = {
        site: replace(
            pair,
            a=cast(pair.a, dtype),
            b=cast(pair.b, dtype),
            scaling=pair.scaling * part.weight,
        )
        for site, pair in part.pairs.items()
    }
    for gate_kind, up_kind in GATED:
        if is_fused(dialect, gate_kind, up_kind):
            for layer in sorted({site.layer for site in pairs}):
                _tie(pairs, Site(layer, gate_kind), Site(layer, up_kind), contents)
    return pairs


def _tie(pairs: SitePairs, gate_site: Site, up_site: Site, contents: Contents) -> None:
    gate, up = pairs.get(gate_site), pairs.get(up_site)
    either = gate or up
    if either is None:
        return
    gate = gate or zero_like(either, either.b.shape[-2])
    up = up or zero_like(either, either.b.shape[-2])
    if gate.form is up.form and gate.a.shape[-1] == up.a.shape[-1]:
        pairs[gate_site], pairs[up_site] = tie(gate, up, contents.is_same)


def _sum(site: Site, present: list[Pair], dtype: str) -> Pair:
    """Return the sum of deltas as one pair; those without effect take no rank."""
    pairs = [pair for pair in present if pair.scaling] or present[:1]
    pairs = _alike(site, pairs)
    scaling = _common_scaling([pair.scaling for pair in pairs])
    first = pairs[0]
    b = [scale(pair.b, _ratio(pair.scaling, scaling), dtype) for pair in pairs]
    rows, columns = len(first.a.shape) - 2, len(first.b.shape) - 1
    return replace(
        first, a=join([pair.a for pair in pairs], rows), b=join(b, columns), scaling=scaling
    )


def _alike(site: Site, pairs: list[Pair]) -> list[Pair]:
    """Return pairs of one form, each factor of one number of experts, the head's of equal rows."""
    if site == HEAD_SITE:
        rows = max(pair.b.shape[0] for pair in pairs)
        return [replace(pair, b=pad(pair.b, 0, rows)) for pair in pairs]
    experts = max(pair.experts for pair in pairs)
    if not experts:
        return pairs
    pairs = [to_stack(pair, experts) if pair.form is Form.FLAT else pair for pair in pairs]
    has_a = any(pair.a.shape[0] > 1 for pair in pairs)
    has_b = any(pair.b.shape[0] > 1 for pair in pairs)
    return [
        replace(
            pair,
            a=expand_experts(pair.a, experts) if has_a else pair.a,
            b=expand_experts(pair.b, experts) if has_b else pair.b,
        )
        for pair in pairs
    ]


def _common_scaling(scalings: Sequence[float]) -> float:
    """Return the scaling, not negative, at which the fewest are rounded; the first of equals.

    Two that are a power of two apart are of one kind: either is exact over the other.
    """
    kinds = [round(math.frexp(abs(scaling))[0], 14) for scaling in scalings]
    kind = Counter(kinds).most_common(1)[0][0]
    return abs(scalings[kinds.index(kind)])


def _ratio(scaling: float, common: float) -> float:
    """Return the ratio of scalings, exactly a power of two where rounding alone keeps it off."""
    if not common:
        return 1.0
    ratio = scaling / common
    if not ratio or not math.isfinite(ratio):
        return ratio
    mantissa, exponent = math.frexp(ratio)
    nearest = math.copysign(1.0 if abs(mantissa) > 0.75 else 0.5, mantissa)
    is_near = math.isclose(mantissa, nearest, rel_tol=SCALING_ROUNDING, abs_tol=0.0)
    return math.ldexp(nearest, exponent) if is_near else ratio
