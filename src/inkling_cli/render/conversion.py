"""`inkling convert-adapter` for people and for programs."""

from collections import Counter
from typing import Any

from rich.text import Text

from inkling_cli.render.printable import printable
from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.moves import iter_reads, verbs


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
    for change in conversion.changes:
        text.append(f"  {printable(change)}\n")
    text.rstrip()
    return text


def render_result(conversion: Conversion, out: str, lines: tuple[str, ...]) -> Text:
    """Return what was written and how to serve it."""
    text = Text.assemble(("wrote ", "bold"), printable(out), f": {_summary(conversion)}\n")
    for line in lines:
        text.append("  serve: " if conversion.dialect.name != "peft" else "  load: ", "bold cyan")
        text.append(f"{printable(line)}\n")
    text.rstrip()
    return text


def _summary(conversion: Conversion) -> str:
    source = conversion.source
    counts = Counter(verb for output in conversion.outputs for verb in verbs(output.array))
    work = ", ".join(f"{verb} {count}" for verb, count in sorted(counts.items()))
    return (
        f"{source.dialect.name} → {conversion.dialect.name}, "
        f"{len(conversion.outputs):,} tensors, {conversion.nbytes:,} bytes ({work})"
    )


def conversion_object(conversion: Conversion, out: str, is_written: bool) -> dict[str, Any]:
    """Return the JSON object of a conversion, less `version` and `command`."""
    return {
        "source": str(conversion.source.path),
        "from": conversion.source.dialect.name,
        "to": conversion.dialect.name,
        "out": out,
        "written": is_written,
        "bytes": conversion.nbytes,
        "changes": list(conversion.changes),
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
