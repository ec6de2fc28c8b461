"""Options of the commands that write an adapter at another rank."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from inkling_cli.checks.launch.vllm.limits import ALLOWED_RANKS
from inkling_runtime.adapter.convert.options import Options
from inkling_runtime.adapter.resize.target_rank import TargetRank, require_target_rank


class RankLimit(StrEnum):
    """Consumers that take certain ranks only."""

    VLLM = "vllm"


_ALLOWED = {RankLimit.VLLM: ALLOWED_RANKS}

RankOption = Annotated[int | None, typer.Option("--rank", metavar="R", help="The new rank.")]
EnergyOption = Annotated[
    float | None,
    typer.Option(
        "--energy",
        metavar="SHARE",
        help="In place of a rank: the smallest at which every module keeps this share of its "
        "energy, Σσ², as 0.99.",
    ),
]
ForOption = Annotated[
    RankLimit | None,
    typer.Option("--for", help="Round the rank up to a `--max-lora-rank` of this engine."),
]


def build_target(rank: int | None, energy: float | None, limit: RankLimit | None) -> TargetRank:
    """Return the rank that is asked for.

    Raises:
        InklingError: neither a rank nor an energy, both, or one beyond what there is.
    """
    target = TargetRank(rank, energy, _ALLOWED[limit] if limit else ())
    require_target_rank(target)
    return target


def target_wishes(target: TargetRank, options: Options) -> dict[str, Any]:
    """Return what was asked for, for the record beside the result."""
    return {
        "rank": target.rank,
        "energy": target.energy,
        "allowed_ranks": list(target.allowed),
        "dtype": options.dtype,
    }
