"""`inkling convert-adapter` for people and for programs."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from rich.text import Text

from inkling_cli.render.printable import printable
from inkling_cli.render.proof import proof_line, proven
from inkling_runtime.adapter.convert.options import is_loss
from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.moves import iter_reads, verbs
from inkling_runtime.adapter.outputs import Output, copied_runs
from inkling_runtime.adapter.provenance.proven import Proof
from inkling_runtime.errors import format_count


def render_plan(conversion: Conversion) -> Text:
    """Return the plan, a line for tensors that are alike but for layer and expert; what changes."""
    text = Text()
    for line, outputs in _alike(conversion.outputs).items():
        nbytes = sum(output.spec.nbytes for output in outputs)
        line, count = (
            (line, f"{len(outputs):,} × ") if len(outputs) > 1 else (_line(outputs[0]), "")
        )
        text.append(f"{count}{line}, {nbytes:,} bytes\n")
    text.append(f"{_summary(conversion)}\n", "bold")
    text.append(f"  {_expected_time(conversion)}\n")
    for change in conversion.changes:
        text.append(f"  {printable(change)}\n", "bold red" if is_loss(change) else None)
    text.rstrip()
    return text


def _alike(outputs: Iterable[Output]) -> dict[str, list[Output]]:
    """Return outputs by their line without numbers of layers and experts."""
    found: dict[str, list[Output]] = {}
    for output in outputs:
        found.setdefault(_line(output, lambda name: _NUMBER.sub("*", name)), []).append(output)
    return found


_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def _line(output: Output, shorten: Callable[[str], str] = str) -> str:
    """Return what an output is and comes from."""
    name = shorten(output.spec.name)
    origins = [shorten(read.tensor.name) for read in iter_reads(output.array)] or ["zeros"]
    verb = ", ".join(verbs(output.array))
    if verb == "copy" and origins[0] != name:
        verb = "rename"
    origin = "" if verb == "copy" else f": {origins[0]}"
    more = f" and {len(origins) - 1} more" if len(origins) > 1 else ""
    shape = "x".join(map(str, output.spec.shape))
    return printable(f"{name} [{output.spec.dtype} {shape}] ← {verb}{origin}{more}")


def render_result(
    conversion: Conversion, out: str, lines: tuple[str, ...], proof: Proof | None = None
) -> Text:
    """Return what was written, what was proven of it, and how to serve it."""
    text = Text.assemble(("wrote ", "bold"), printable(out), f": {_summary(conversion)}\n")
    for change in filter(is_loss, conversion.changes):
        text.append(f"  {printable(change)}\n", "bold red")
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


def _expected_time(conversion: Conversion) -> str:
    seconds = max(1, round(_expected_seconds(conversion)))
    return (
        f"expected time: about {format_count(seconds, 'second')} on a disk of "
        f"{_COPIED_GB_S:g} GB/s, {_computed_bytes(conversion):,} bytes of it moved or computed and "
        "proven"
    )


def _expected_seconds(conversion: Conversion) -> float:
    computed = _computed_bytes(conversion)
    copied = conversion.nbytes - computed
    return copied / _COPIED_GB_S / 1e9 + computed / _COMPUTED_GB_S / 1e9


def _computed_bytes(conversion: Conversion) -> int:
    return sum(o.spec.nbytes for o in conversion.outputs if copied_runs(o.array) is None)


def _summary(conversion: Conversion) -> str:
    source = conversion.source
    counts = Counter(verb for output in conversion.outputs for verb in verbs(output.array))
    work = ", ".join(f"{verb} {count}" for verb, count in sorted(counts.items()))
    files = f" in {len(conversion.shards):,} files" if len(conversion.shards) > 1 else ""
    return (
        f"{source.dialect.name} → {conversion.dialect.name}, "
        f"{len(conversion.outputs):,} tensors{files}, {conversion.nbytes:,} bytes ({work})"
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
        "files": len(conversion.shards),
        "expected_seconds": round(_expected_seconds(conversion), 1),
        "dropped": sorted(conversion.options.dropped & {s.kind.group for s in conversion.pairs}),
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
