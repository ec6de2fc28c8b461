"""`inkling convert-adapter` for people and for programs."""

from collections import Counter
from typing import Any

from rich.text import Text

from inkling_cli.render.printable import printable
from inkling_cli.render.proof import proof_line, proven
from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.moves import iter_reads, verbs
from inkling_runtime.adapter.outputs import copied_runs
from inkling_runtime.adapter.provenance.proven import Proof
from inkling_runtime.errors import format_count


def render_plan(conversion: Conversion) -> Text:
    """Return the whole plan: a line for each tensor, then what changes."""
    text = Text()
    for output in conversion.outputs:
        sources = [read.tensor.name for read in iter_reads(output.array)]
        origin = printable(sources[0]) if sources else "zeros"
        if len(sources) > 1:
            origin += f" and {len(sources) - 1} more"
        verb = ", ".join(verbs(output.array))
        if sources and verb == "copy" and sources[0] != output.spec.name:
            verb = "rename"
        shape = "x".join(map(str, output.spec.shape))
        text.append(f"{output.spec.name} [{output.spec.dtype} {shape}] ← {verb}: {origin}\n")
    text.append(f"{_summary(conversion)}\n", "bold")
    text.append(f"  {expected_time(conversion)}\n")
    for change in conversion.changes:
        text.append(f"  {printable(change)}\n")
    text.rstrip()
    return text


def render_result(
    conversion: Conversion, out: str, lines: tuple[str, ...], proof: Proof | None = None
) -> Text:
    """Return what was written, what was proven of it, and how to serve it."""
    text = Text.assemble(("wrote ", "bold"), printable(out), f": {_summary(conversion)}\n")
    if proof is not None and (line := proof_line(proof)):
        text.append("  proven: ", "bold green").append(f"{line}\n")
    add_serving(text, conversion, lines)
    text.rstrip()
    return text


def add_serving(text: Text, conversion: Conversion, lines: tuple[str, ...]) -> None:
    """Add how the result is served or loaded."""
    for line in lines:
        text.append("  serve: " if conversion.dialect.name != "peft" else "  load: ", "bold cyan")
        text.append(f"{printable(line)}\n")


_COPIED_GB_S, _COMPUTED_GB_S = 1.0, 0.4


def expected_time(conversion: Conversion) -> str:
    """Return about how long the writing takes, in words."""
    computed = sum(o.spec.nbytes for o in conversion.outputs if copied_runs(o.array) is None)
    copied = conversion.nbytes - computed
    seconds = max(1, round(copied / _COPIED_GB_S / 1e9 + computed / _COMPUTED_GB_S / 1e9))
    return (
        f"expected time: about {format_count(seconds, 'second')} on a disk of "
        f"{_COPIED_GB_S:g} GB/s, {computed:,} bytes of it moved or computed and proven"
    )


def _summary(conversion: Conversion) -> str:
    source = conversion.source
    counts = Counter(verb for output in conversion.outputs for verb in verbs(output.array))
    work = ", ".join(f"{verb} {count}" for verb, count in sorted(counts.items()))
    return (
        f"{source.dialect.name} → {conversion.dialect.name}, "
        f"{len(conversion.outputs):,} tensors, {conversion.nbytes:,} bytes ({work})"
    )


def conversion_object(
    conversion: Conversion, out: str, is_written: bool, proof: Proof | None = None
) -> dict[str, Any]:
    """Return the JSON object of a conversion, less `version` and `command`."""
    return {
        "source": str(conversion.source.path),
        "from": conversion.source.dialect.name,
        "to": conversion.dialect.name,
        "out": out,
        "written": is_written,
        "bytes": conversion.nbytes,
        "changes": list(conversion.changes),
        **proven(proof),
        "config": conversion.config,
        "tensors": [
            {
                "name": output.spec.name,
                "dtype": output.spec.dtype,
                "shape": list(output.spec.shape),
                "moves": list(verbs(output.array)),
                "sources": [read.tensor.name for read in iter_reads(output.array)],
            }
            for output in conversion.outputs
        ],
    }
