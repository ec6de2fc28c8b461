"""The delta of one base tensor, laid out as that tensor is: a lazy array over the adapter's file.

Nothing is computed here, and ΔW is never formed as a whole.
"""

from collections.abc import Mapping
from dataclasses import replace

from inkling_runtime.adapter.arithmetic import Product
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.moves import Array, Zeros, cut, interleave, join, pad
from inkling_runtime.adapter.pairs import Form, Pair, to_stack
from inkling_runtime.adapter.site_pairs import Contents, SitePairs
from inkling_runtime.adapter.sites import HEAD_SITE, Site
from inkling_runtime.errors import InklingError
from inkling_runtime.merge.targets import Target

WIDE: Mapping[str, str] = {"BF16": "F32", "F16": "F32", "F32": "F64", "F64": "F64"}
"""The dtype in which a sum is computed, by the base's.

Wide enough that only the one rounding into the base's dtype shows: F32 has 16 bits more than BF16
and 13 more than F16, at half the cost of F64. For a base of F32 the products of two factors of F32
are exact in F64, and their sum has 29 bits to spare."""


def weigh(pairs: SitePairs, weight: float, spec: ModelSpec) -> SitePairs:
    """Return an adapter's factors with a weight in their scaling, all experts as stacks."""
    weighed = {}
    for site, pair in pairs.items():
        stacked = to_stack(pair, spec.num_shared_experts) if pair.form is Form.FLAT else pair
        weighed[site] = replace(stacked, scaling=pair.scaling * weight)
    return weighed


def fit_head(pairs: SitePairs, rows: int, contents: Contents, adapter: str) -> SitePairs:
    """Return the pairs with no more rows of the head than the base has.

    Raises:
        InklingError: rows beyond them are not zero.
    """
    head = pairs.get(HEAD_SITE)
    if head is None or head.b.shape[0] <= rows:
        return pairs
    have = head.b.shape[0]
    if not contents.is_zero(cut(head.b, 0, rows, have)):
        raise InklingError(
            f"`{HEAD_SITE}` of `{adapter}` has {have} rows where the base model has {rows}, "
            "and the surplus rows are not zero",
            "merge into a checkpoint with the padded vocabulary",
        )
    return {**pairs, HEAD_SITE: replace(head, b=cut(head.b, 0, 0, rows))}


def delta_of(
    target: Target, pairs: Mapping[Site, Pair], spec: ModelSpec, rows: int, wide: str
) -> Array | None:
    """Return what an adapter adds to a tensor; None where it adapts none of its sites.

    Args:
        target: the tensor's sites.
        pairs: the adapter's factors, from `weigh` and `fit_head`.
        spec: the base model.
        rows: of the tensor; the head gets zeros up to them.
        wide: the dtype to compute in, F32 or F64.
    """
    if not any(site in pairs for site in target.sites):
        return None
    parts = [_part(site, pairs, spec, wide) for site in target.sites]
    axis = len(parts[0].shape) - 2
    if target.is_interleaved:
        gate, up = parts
        return interleave(gate, up, axis)
    joined = join(parts, axis)
    return pad(joined, axis, rows) if target.sites == (HEAD_SITE,) else joined


def _part(site: Site, pairs: Mapping[Site, Pair], spec: ModelSpec, wide: str) -> Array:
    """Return the delta of one site, zeros where the adapter has none."""
    if site in pairs:
        pair = pairs[site]
        return Product(pair.a, pair.b, pair.scaling, wide)
    shape = spec.sites()[site]
    experts = (shape.experts,) if shape.experts else ()
    return Zeros(wide, (*experts, shape.out_features, shape.in_features))
