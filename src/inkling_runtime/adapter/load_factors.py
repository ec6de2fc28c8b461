"""An adapter's numbers in the one layout that consumers of deltas use."""

from dataclasses import replace

from inkling_runtime.adapter.adapter import Adapter, require_understood
from inkling_runtime.adapter.arrays import load, typed
from inkling_runtime.adapter.factors import SiteFactors, to_float32
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.pairs import Form, Pair, to_stack
from inkling_runtime.adapter.site_pairs import HEADERS_ONLY, gather_pairs
from inkling_runtime.adapter.sites import Site


def load_factors(adapter: Adapter, spec: ModelSpec) -> dict[Site, SiteFactors]:
    """Return the factors of every site, experts as stacks (see `SiteFactors`).

    Raises:
        InklingError: the adapter is not sound or its layout does not fit the model.
    """
    require_understood(adapter)
    pairs = gather_pairs(adapter, spec, HEADERS_ONLY)
    return {site: _load_pair(_as_stack(pair, spec)) for site, pair in pairs.items()}


def _as_stack(pair: Pair, spec: ModelSpec) -> Pair:
    if pair.form is not Form.FLAT:
        return pair
    width = pair.a.shape[-1] if pair.is_down else pair.b.shape[-2]
    if width % spec.num_shared_experts:
        return replace(pair, form=Form.MATRIX)
    return to_stack(pair, spec.num_shared_experts)


def _load_pair(pair: Pair) -> SiteFactors:
    a, b = typed(load(pair.a), pair.a.dtype), typed(load(pair.b), pair.b.dtype)
    if pair.a.dtype == pair.b.dtype:
        return SiteFactors(a, b, pair.a.dtype, pair.scaling)
    wide_a, wide_b = to_float32(a, pair.a.dtype), to_float32(b, pair.b.dtype)
    return SiteFactors(wide_a, wide_b, "F32", pair.scaling)
