"""What each module keeps of its energy at a rank, and the rank that keeps enough.

The energy of a module is Σσ² of its delta: the squared Frobenius norm, over all of its experts.
What is lost is the tail of that sum, so that a share very near 1 is not rounded to it.
"""

from collections.abc import Sequence

import numpy as np

from inkling_runtime.adapter.resize.decompose import Decomposition
from inkling_runtime.adapter.resize.kept import KeptModule
from inkling_runtime.adapter.resize.target_rank import TargetRank
from inkling_runtime.adapter.resize.triangles import Wide
from inkling_runtime.errors import InklingError


def choose_rank(target: TargetRank, decompositions: Sequence[Decomposition]) -> int:
    """Return the one rank of all modules.

    Raises:
        InklingError: none that is allowed is large enough.
    """
    rank = target.rank or 1
    if target.energy is not None:
        energy = target.energy
        rank = max((_rank_for(energy, d.sigma) for d in decompositions), default=1)
    if not target.allowed:
        return rank
    allowed = [one for one in target.allowed if one >= rank]
    if not allowed:
        raise InklingError(
            f"the rank is {rank}, the largest that is allowed is {target.allowed[-1]}",
            "ask for a smaller rank or for less energy",
        )
    return allowed[0]


def require_energy(decomposition: Decomposition) -> None:
    """Require that the energy of a group is a number.

    Raises:
        InklingError: its singular values are too large or too small to be squared in float64.
    """
    smallest, largest = _SQUARED
    found = float(decomposition.sigma.max(initial=0.0))
    if found and not smallest < found < largest:
        raise InklingError(
            f"the largest singular value of `{decomposition.group.name}` is {found:.3g}, expected "
            f"it between {smallest:g} and {largest:g}, where float64 holds its square"
        )


_SQUARED = (1e-140, 1e150)
"""Squares of numbers between them keep all digits, and so does the sum of a million of them."""

_ROUNDING = 1e-12
"""A share counts as kept where only the rounding of its sums stands between."""


def _rank_for(energy: float, sigma: Wide) -> int:
    """Return the smallest rank, at least 1, at which so large a share is kept."""
    lost = _lost_at_each_rank(sigma)
    enough = np.flatnonzero(lost <= (1 - energy) * lost[0] * (1 + _ROUNDING))
    return max(1, int(enough[0]))


def _lost_at_each_rank(sigma: Wide) -> Wide:
    """Return Σσ² of what is cut at the ranks 0, 1, … n."""
    squares = (sigma * sigma).sum(axis=0)
    return np.append(np.cumsum(squares[::-1])[::-1], 0.0)


def kept_module(decomposition: Decomposition, rank: int) -> KeptModule:
    """Return what a group keeps at a rank."""
    lost = _lost_at_each_rank(decomposition.sigma)
    group = decomposition.group
    cut = 0.0 if rank >= min(group.rank, len(lost)) else float(lost[rank])
    return KeptModule(group.sites, group.rank, float(lost[0]), cut)
