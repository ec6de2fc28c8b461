"""An adapter's numbers in the one layout that consumers of deltas use."""

from collections.abc import Mapping

from inkling_runtime.adapter.arrays import load
from inkling_runtime.adapter.factors import SiteFactors, to_float32
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.pairs import Form, Pair, to_stack
from inkling_runtime.adapter.rounding import typed
from inkling_runtime.adapter.sites import Site


def load_factors(pairs: Mapping[Site, Pair], spec: ModelSpec) -> dict[Site, SiteFactors]:
    """Return the factors of sites that fit the model, experts as stacks (see `SiteFactors`).

    Raises:
        InklingError: the file changed or cannot be read.
    """
    return {site: _load_pair(_as_stack(pair, spec)) for site, pair in pairs.items()}


def _as_stack(pair: Pair, spec: ModelSpec) -> Pair:
    return to_stack(pair, spec.num_shared_experts) if pair.form is Form.FLAT else pair


def _load_pair(pair: Pair) -> SiteFactors:
    a, b = typed(load(pair.a), pair.a.dtype), typed(load(pair.b), pair.b.dtype)
    if pair.a.dtype == pair.b.dtype:
        return SiteFactors(a, b, pair.a.dtype, pair.scaling)
    wide_a, wide_b = to_float32(a, pair.a.dtype), to_float32(b, pair.b.dtype)
    return SiteFactors(wide_a, wide_b, "F32", pair.scaling)
