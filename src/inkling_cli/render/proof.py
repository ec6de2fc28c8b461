"""What was proven of a written adapter, for people and for programs."""

from typing import Any

from inkling_runtime.adapter.provenance.proven import Proof, Proven
from inkling_runtime.errors import format_count

_WORDS = {
    Proven.BYTES: "the source's bytes",
    Proven.EQUAL: "equal to the source's delta",
    Proven.ROUNDED: "the source's but for one rounding",
    Proven.RE_EVALUATED: "computed a second time with the same result",
    Proven.NOTHING: "copied, not read back",
}


def proof_line(proof: Proof) -> str:
    """Return how many modules were proven to be what, in a line; empty if nothing was."""
    counts = proof.counts
    if set(counts) == {Proven.NOTHING}:
        return ""
    return "; ".join(
        f"{format_count(count, 'module')} {_WORDS[proven]}" for proven, count in counts.items()
    )


def proven(proof: Proof | None) -> dict[str, Any]:
    """Return the key of a JSON object: the number of modules for each kind of proof."""
    if proof is None:
        return {}
    return {"proven": {kind.value: proof.counts.get(kind, 0) for kind in Proven}}
