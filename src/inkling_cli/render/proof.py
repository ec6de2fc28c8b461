"""What was proven of a written adapter, for people and for programs."""

from collections.abc import Mapping
from typing import Any

from inkling_runtime.adapter.provenance.proven import Proof, Proven
from inkling_runtime.errors import format_count

_WORDS = {
    Proven.BYTES: "by the source's bytes",
    Proven.EQUAL: "equal to the source's delta",
    Proven.ROUNDED: "equal but for one rounding",
    Proven.RE_EVALUATED: "computed a second time, the same",
    Proven.NOTHING: "not the source's",
}


def proof_line(proof: Proof) -> str:
    """Return how many modules were proven in which way, in a line; empty if none was."""
    counts = dict(proof.counts)
    copied = counts.pop(Proven.NOTHING, 0)
    rest = f"; {copied:,} copied and not read back" if counts and copied else ""
    return counts_line(counts) + rest


def counts_line(counts: Mapping[Proven, int]) -> str:
    """Return how many modules each proof was found for, the strongest first."""
    return ", ".join(
        f"{format_count(number, 'module') if not index else f'{number:,}'} {_WORDS[proven]}"
        for index, (proven, number) in enumerate(counts.items())
    )


def proven(proof: Proof | None) -> dict[str, Any]:
    """Return the key of a JSON object: the number of modules for each kind of proof."""
    if proof is None:
        return {}
    return {"proven": {kind.value: proof.counts.get(kind, 0) for kind in Proven}}
