"""The library's whole way from an adapter to a resized one, and the best that a rank can do.

The reference forms every delta in float64 and takes numpy's SVD of it. Which sites share a basis
is said here by dialect, and read off the stored numbers, never off the code under test.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from conversion import spec_of
from lora_factors import Array, Factors

from factories import Sizes
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.arrays import CONTENTS
from inkling_runtime.adapter.convert.options import Options
from inkling_runtime.adapter.convert.write import write_conversion
from inkling_runtime.adapter.dialects import require_target
from inkling_runtime.adapter.provenance.proven import Account, Action
from inkling_runtime.adapter.resize.coefficient_store import CoefficientStore
from inkling_runtime.adapter.resize.kept import Resize
from inkling_runtime.adapter.resize.plan import Destination, plan_adapter_resize
from inkling_runtime.adapter.resize.target_rank import TargetRank

UNIT = {"BF16": 2**-8, "F16": 2**-11, "F32": 2**-24}
"""The most that one rounding changes an element, relative."""


def resize(
    source: Path,
    out: Path,
    sizes: Sizes,
    target: TargetRank,
    *,
    to: str | None = None,
    dialect: str | None = None,
    dtype: str | None = None,
) -> Resize:
    """Plan and write a resized adapter and return its plan."""
    adapter, spec = read_adapter(source, dialect), spec_of(sizes)
    written = require_target(to or adapter.dialect.written_as)
    destination = Destination(written, spec, Options(dtype=dtype))
    with CoefficientStore() as store:
        plan = plan_adapter_resize(adapter, target, destination, CONTENTS, store)
        write_conversion(plan.conversion, out, account=Account(Action.RESIZE, (adapter,)))
    return plan


@dataclass(frozen=True)
class Best:
    """The singular values of the matrices that are approximated, each for itself."""

    sites: tuple[str, ...]
    sigma: tuple[Array, ...]

    @property
    def energy(self) -> float:
        return sum(float((s * s).sum()) for s in self.sigma)

    def lost(self, rank: int) -> float:
        """Return Σσ² of what no approximation of the rank can hold."""
        return sum(float((s[rank:] ** 2).sum()) for s in self.sigma)


def best_of(
    deltas: Mapping[str, Factors], fused: Iterable[tuple[str, str]], *, is_flat: bool = False
) -> list[Best]:
    """Return what can be kept of each site, those of a pair in `fused` (name ends) together.

    With `is_flat`, the shared experts lie side by side in one matrix.
    """
    partner = {}
    for gate, up in fused:
        for site in deltas:
            if site.endswith(gate) and (other := site.removesuffix(gate) + up) in deltas:
                partner[site] = other
    result = []
    for site in deltas:
        if site in partner.values():
            continue
        sites = (site, partner[site]) if site in partner else (site,)
        is_one = is_flat and "shared_experts" in site
        sigma = _sigma([deltas[name] for name in sites], site.endswith("w2"), is_one)
        result.append(Best(sites, sigma))
    return result


def _sigma(members: list[Factors], is_down: bool, is_one: bool) -> tuple[Array, ...]:
    """Return singular values: of each expert, or of all together where they share the outer factor.

    With `is_one`, all experts are one matrix in any case.
    """
    by_expert = np.concatenate([member.delta() for member in members], axis=1)
    if not is_one and not all(_is_repeated(m.b if is_down else m.a) for m in members):
        matrices = list(by_expert)
    elif is_down:
        matrices = [np.concatenate(list(by_expert), axis=1)]
    else:
        matrices = [by_expert.reshape(-1, by_expert.shape[2])]
    return tuple(np.linalg.svd(matrix, compute_uv=False) for matrix in matrices)


def _is_repeated(factor: Array) -> bool:
    return bool((factor == factor[:1]).all())


def distance(found: Factors | None, wanted: Factors) -> float:
    """Return ‖ΔW − ΔW'‖ of a site; a site that is absent adds nothing."""
    delta = wanted.delta()
    return float(np.linalg.norm(delta if found is None else delta - found.delta()))


def assert_best(
    plan: Resize,
    found: Mapping[str, Factors],
    before: Mapping[str, Factors],
    best: Iterable[Best],
    unit: float,
) -> None:
    """Assert that no module could be nearer at this rank, and that the plan says how near it is.

    Both factors of each of k components of norm σ are rounded once: 2·unit·Σσ at most.
    """
    told = {tuple(map(str, module.sites)): module for module in plan.modules}
    for one in best:
        lost = one.lost(plan.rank)
        rounding = 2.1 * unit * sum(float(s[: plan.rank].sum()) for s in one.sigma)
        error = np.linalg.norm([distance(found.get(site), before[site]) for site in one.sites])
        floor = 1e-12 * np.sqrt(one.energy)
        assert abs(error - np.sqrt(lost)) <= rounding + floor, one.sites
        module = told[one.sites]
        assert abs(module.energy - one.energy) <= 1e-12 * one.energy, one.sites
        assert abs(module.lost - lost) <= 1e-12 * one.energy, one.sites
