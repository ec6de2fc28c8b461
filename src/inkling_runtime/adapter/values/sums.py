"""What the windows of a pass add up to: tensors by runs, factors by products, sites at the end.

A site is closed as soon as both its factors are complete, and products that no open site needs
are dropped: that is what keeps a pass small.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from inkling_runtime.adapter.safetensors_file import TensorInfo
from inkling_runtime.adapter.site_pairs import SitePairs
from inkling_runtime.adapter.sites import Site
from inkling_runtime.adapter.values.adapter_values import AdapterValues, DeltaValues
from inkling_runtime.adapter.values.delta_values import Gram, delta_values
from inkling_runtime.adapter.values.plan import PassPlan, Window
from inkling_runtime.adapter.values.tensor_values import RunValues, join_runs


@dataclass(frozen=True, slots=True)
class Measured:
    """A window's elements, and what it adds to each factor; None where it is not finite."""

    window: Window
    run: RunValues
    products: tuple[tuple[int, int, Gram | None], ...]
    """Factor, first expert, product."""


class Sums:
    """The numbers of an adapter on their way."""

    def __init__(self, plan: PassPlan, pairs: SitePairs) -> None:
        self._plan = plan
        self._pairs = pairs
        self._runs: dict[str, list[RunValues]] = {}
        self._products: dict[int, Gram | None] = {}
        self._left: dict[int, int] = {}
        self._sites_of: dict[int, list[Site]] = {}
        self._deltas: dict[Site, DeltaValues] = {}
        self._not_finite: list[Site] = []
        self._not_computed = dict(plan.not_computed)
        for window in plan.windows:
            for use in window.uses:
                self._left[use.factor] = self._left.get(use.factor, 0) + 1
        for site, factors in plan.sites.items():
            for factor in factors:
                self._sites_of.setdefault(factor, []).append(site)

    def add(self, measured: Measured) -> None:
        """Add a window."""
        window = measured.window
        self._runs.setdefault(window.tensor.name, []).append(measured.run)
        for factor, expert, product in measured.products:
            self._add_product(factor, expert, product)
        for use in window.uses:
            self._left[use.factor] -= 1
        for factor in {use.factor for use in window.uses if not self._left[use.factor]}:
            for site in tuple(self._sites_of[factor]):
                self._close(site)

    def _add_product(self, factor: int, expert: int, product: Gram | None) -> None:
        if factor not in self._products:
            plan = self._plan.factors[factor]
            self._products[factor] = np.zeros((plan.experts, plan.rank, plan.rank))
        total = self._products[factor]
        if product is None:
            self._products[factor] = None
        elif total is not None:
            total[expert : expert + len(product)] += product

    def _close(self, site: Site) -> None:
        """Compute a site once both factors are complete, and drop what nobody waits for."""
        factors = self._plan.sites[site]
        if any(self._left[factor] for factor in factors):
            return
        a, b = (self._products[factor] for factor in factors)
        if a is None or b is None:
            self._not_finite.append(site)
        elif not (np.isfinite(a).all() and np.isfinite(b).all()):
            self._not_computed[site] = "its numbers are too large to be squared"
        else:
            pair = self._pairs[site]
            is_stack = self._plan.factors[factors[0]].is_stack
            self._deltas[site] = delta_values(a, b, pair.scaling, is_stack)
        for factor in factors:
            self._sites_of[factor].remove(site)
            if not self._sites_of[factor]:
                del self._products[factor]

    def values(self, tensors: Mapping[str, TensorInfo]) -> AdapterValues:
        """Return everything; what was read of `tensors` is in their order."""
        read = [tensor for tensor in tensors.values() if tensor.name not in self._plan.not_read]
        return AdapterValues(
            {
                tensor.name: join_runs(
                    self._runs.get(tensor.name, ()), tensor.dtype, tensor.num_elements
                )
                for tensor in read
            },
            dict(sorted(self._deltas.items())),
            sum(tensor.nbytes for tensor in read),
            self._plan.not_read,
            tuple(sorted(self._not_finite)),
            dict(sorted(self._not_computed.items())),
        )
