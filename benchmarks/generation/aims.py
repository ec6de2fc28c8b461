"""What the runtime is meant to reach, and whether a run of bench_generate.py shows it."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from generation.rounds import ADAPTED, BASE, PEER_ADAPTED, PEER_BASE, UNUSED, Case

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Aim:
    """A figure with a bound."""

    dtype: str
    batch: int
    what: str
    found: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether the figure is within its bound."""
        low = self.at_least is None or self.found >= self.at_least
        return low and (self.at_most is None or self.found <= self.at_most)

    def as_object(self) -> dict[str, Any]:
        """Return the aim for JSON."""
        return {**asdict(self), "is_met": self.is_met}


def find_aims(rows: Sequence[Row], adapter_aim: int, is_large: bool) -> list[Aim]:
    """Return every aim that these rows speak of.

    Ratios are medians of the rounds' own ratios: what slows a machine down for a minute meets both
    parts of one.

    Args:
        rows: as of `Rounds.rows`.
        adapter_aim: how many times PEFT's decode speed is meant.
        is_large: whether the model is so large that a share of the memory's rate is asked for.
    """
    aims = []
    for dtype, batch in dict.fromkeys((row["dtype"], row["batch"]) for row in rows):
        found = {row["case"]: row for row in rows if (row["dtype"], row["batch"]) == (dtype, batch)}
        aims += _aims_of_all_batches(found, dtype, batch)
        if batch == 1:
            aims += _aims_of_one(found, dtype, adapter_aim, is_large)
    return aims


def _aims_of_one(rows: dict[str, Row], dtype: str, adapter_aim: int, is_large: bool) -> list[Aim]:
    base = _ratio(rows, BASE, PEER_BASE, _decode)
    adapted = _ratio(rows, ADAPTED, PEER_ADAPTED, _decode)
    aims = [
        Aim(dtype, 1, "decode, × transformers", base, at_least=4),
        Aim(dtype, 1, "decode with adapter, × PEFT", adapted, at_least=adapter_aim),
    ]
    if is_large:
        share = rows[BASE.label]["share_of_limit"]
        aims.append(Aim(dtype, 1, "decode, share of the memory's rate", share, at_least=0.5))
    return aims


def _aims_of_all_batches(rows: dict[str, Row], dtype: str, batch: int) -> list[Aim]:
    cost = _ratio(rows, UNUSED, ADAPTED, _decode) - 1
    first = _ratio(rows, BASE, PEER_BASE, _first)
    first_adapted = _ratio(rows, ADAPTED, PEER_ADAPTED, _first)
    return [
        Aim(dtype, batch, "our cost of an adapter in decode", cost, at_most=0.15),
        Aim(dtype, batch, "first token, × transformers' time", first, at_most=1),
        Aim(dtype, batch, "first token with adapter, × PEFT's time", first_adapted, at_most=1),
    ]


def _decode(run: dict[str, float]) -> float:
    return run["decode_tokens"] / run["decode_s"]


def _first(run: dict[str, float]) -> float:
    return run["first_token_s"]


def _ratio(rows: dict[str, Row], case: Case, peer: Case, figure: Any) -> float:
    """Return a figure of one case over that of another, round by round."""
    pairs = zip(rows[case.label]["runs"], rows[peer.label]["runs"], strict=True)
    return statistics.median(figure(ours) / figure(theirs) for ours, theirs in pairs)
