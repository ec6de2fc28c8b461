"""An adapter's numbers in the one layout that consumers of deltas use."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from inkling_runtime.adapter.adapter import read_adapter, require_understood
from inkling_runtime.adapter.arrays import CONTENTS, load
from inkling_runtime.adapter.factors import SiteFactors, to_float32
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.pairs import Form, Pair, to_stack
from inkling_runtime.adapter.rounding import typed
from inkling_runtime.adapter.site_pairs import gather_pairs
from inkling_runtime.adapter.sites import Site


def load_factors(pairs: Mapping[Site, Pair], spec: ModelSpec) -> dict[Site, SiteFactors]:
    """Return the factors of sites that fit the model, experts as stacks (see `SiteFactors`).

    Raises:
        InklingError: the file changed or cannot be read.
    """
    return dict(LazyFactors(pairs, spec))


def read_factors(folder: Path, spec: ModelSpec, dialect: str | None = None) -> "LazyFactors":
    """Return the factors of an adapter that is wholly understood, in any dialect.

    Factors that are the same for every expert are found and become one.

    Raises:
        InklingError: it cannot be read, or a part of it is not understood.
    """
    adapter = read_adapter(folder, dialect)
    require_understood(adapter)
    return LazyFactors(gather_pairs(adapter, spec, CONTENTS), spec)


class LazyFactors(Mapping[Site, SiteFactors]):
    """The factors of sites that fit the model, read from their files whenever one is asked for.

    For who loads an adapter to a device: nothing of it stays in memory besides.

    Args:
        pairs: the sites' factors.
        spec: the model.
    """

    def __init__(self, pairs: Mapping[Site, Pair], spec: ModelSpec) -> None:
        self._pairs = {site: _as_stack(pair, spec) for site, pair in pairs.items()}

    def __getitem__(self, site: Site) -> SiteFactors:
        """Return the factors of a site.

        Raises:
            InklingError: the file changed or cannot be read.
        """
        return _load_pair(self._pairs[site])

    def __iter__(self) -> Iterator[Site]:
        """Iterate over the sites."""
        return iter(self._pairs)

    def __len__(self) -> int:
        """Return the number of sites."""
        return len(self._pairs)


def _as_stack(pair: Pair, spec: ModelSpec) -> Pair:
    return to_stack(pair, spec.num_shared_experts) if pair.form is Form.FLAT else pair


def _load_pair(pair: Pair) -> SiteFactors:
    a, b = typed(load(pair.a), pair.a.dtype), typed(load(pair.b), pair.b.dtype)
    if pair.a.dtype == pair.b.dtype:
        return SiteFactors(a, b, pair.a.dtype, pair.scaling)
    wide_a, wide_b = to_float32(a, pair.a.dtype), to_float32(b, pair.b.dtype)
    return SiteFactors(wide_a, wide_b, "F32", pair.scaling)
