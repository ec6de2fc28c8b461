"""`inkling merge --into` for people and for programs."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from inkling_cli.render.printable import printable
from inkling_cli.render.table import align_rows
from inkling_runtime.adapter.sites import Group
from inkling_runtime.errors import format_count
from inkling_runtime.merge.merge import ADDED_PER_SECOND, COPIED_PER_SECOND, Merge


def render_merge_plan(merge: Merge) -> Text:
    """Return the whole plan: a line for each shard, what gets a delta, and how long it takes."""
    rows = [
        (
            printable(shard.source.path.name),
            f"{shard.source.file_size:,}",
            f"bytes  {_fate(len(shard.targets), len(shard.outputs))}",
        )
        for shard in merge.shards
    ]
    text = Text()
    for line in align_rows(rows, numbers=(1,)):
        text.append(f"{line}\n")
    text.append(f"{_summary(merge)}\n", "bold")
    for line in _facts(merge):
        text.append(f"  {printable(line)}\n")
    text.rstrip()
    return text


def render_merge_result(merge: Merge, out: str) -> Text:
    """Return what was written."""
    return Text.assemble(("wrote ", "bold"), printable(out), f": {_summary(merge)}")


def _fate(changed: int, total: int) -> str:
    if not changed:
        return "copied"
    return f"{changed:,} of {format_count(total, 'tensor')} with a delta"


def _summary(merge: Merge) -> str:
    return (
        f"{merge.layout.name} layout, {format_count(len(merge.shards), 'file')}, "
        f"{merge.nbytes:,} bytes, {merge.num_changed:,} of {merge.num_tensors:,} tensors with a "
        f"delta ({merge.changed_bytes:,} bytes)"
    )


def _facts(merge: Merge) -> Iterator[str]:
    for addend in merge.addends:
        yield f"{addend.weight:g} × {addend.adapter.path} ({addend.adapter.dialect.name})"
    counts = _group_counts(merge)
    yield "with a delta: " + ", ".join(f"{group} {count:,}" for group, count in counts.items())
    yield (
        f"expected time: {_duration(merge.expected_seconds)}, at {_rate(ADDED_PER_SECOND)} of sums "
        f"and {_rate(COPIED_PER_SECOND)} of copies"
    )
    yield from merge.notes


def _group_counts(merge: Merge) -> dict[str, int]:
    """Return how many tensors of each group get a delta."""
    groups = Counter(
        target.sites[0].kind.group for shard in merge.shards for target in shard.targets.values()
    )
    return {group.value: groups[group] for group in Group if groups[group]}


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def _rate(bytes_per_second: int) -> str:
    return f"{bytes_per_second / 1e9:g} GB/s"


def merge_object(merge: Merge, out: str, is_written: bool) -> dict[str, Any]:
    """Return the JSON object of a merge into a base, less `version` and `command`."""
    return {
        "adapters": [
            {
                "path": str(addend.adapter.path),
                "dialect": addend.adapter.dialect.name,
                "weight": addend.weight,
            }
            for addend in merge.addends
        ],
        "into": str(merge.base.path),
        "layout": merge.layout.name,
        "out": out,
        "written": is_written,
        "bytes": merge.nbytes,
        "changed_bytes": merge.changed_bytes,
        "expected_seconds": round(merge.expected_seconds, 1),
        "notes": list(merge.notes),
        "copied": [path.as_posix() for path in merge.base.others],
        "left_out": [path.as_posix() for path in merge.base.left_out],
        "shards": [
            {
                "name": shard.source.path.name,
                "bytes": shard.source.file_size,
                "num_tensors": len(shard.outputs),
                "changed": [
                    {
                        "name": output.spec.name,
                        "dtype": output.spec.dtype,
                        "shape": list(output.spec.shape),
                        "sites": [str(site) for site in shard.targets[output.spec.name].sites],
                    }
                    for output in shard.outputs
                    if output.spec.name in shard.targets
                ],
            }
            for shard in merge.shards
        ],
    }
