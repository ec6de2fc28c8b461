"""The rank that is asked for: a number, or the share of the energy that it must keep."""

from dataclasses import dataclass
from math import isfinite

from inkling_runtime.errors import InklingError

LARGEST_RANK = 1 << 16
"""Above it, a rank is a typing error."""


@dataclass(frozen=True, slots=True)
class TargetRank:
    """A rank, or the share of every module's energy that the smallest rank must keep.

    `allowed` are the ranks that there may be, ascending; the next larger one is taken.
    """

    rank: int | None = None
    energy: float | None = None
    allowed: tuple[int, ...] = ()


def require_target_rank(target: TargetRank) -> None:
    """Require a rank or an energy that can be asked for, one of the two.

    Raises:
        InklingError: neither, both, or one beyond what there is.
    """
    if (target.rank is None) == (target.energy is None):
        given = "neither is" if target.rank is None else "both are"
        raise InklingError(
            f"of `--rank` and `--energy` {given} given, expected one",
            "`--rank 16`, or `--energy 0.99` for the smallest rank that keeps so much",
        )
    if target.rank is not None and not 1 <= target.rank <= LARGEST_RANK:
        raise InklingError(
            f"`--rank` is {target.rank}, expected a number from 1 to {LARGEST_RANK:,}"
        )
    energy = target.energy
    if energy is not None and not (isfinite(energy) and 0 < energy <= 1):
        raise InklingError(
            f"`--energy` is {energy:g}, expected a share above 0 and at most 1",
            "`--energy 0.99` keeps 99 % of the energy of every module",
        )
