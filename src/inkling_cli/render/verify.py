"""`inkling verify` for people and for programs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from inkling_cli.checks.shell_word import shell_word
from inkling_cli.render.printable import printable
from inkling_cli.render.proof import counts_line
from inkling_runtime.adapter.provenance.check import Change, Check, SourceCheck, TensorChange
from inkling_runtime.adapter.provenance.proven import Action, Proven
from inkling_runtime.adapter.provenance.record import Record
from inkling_runtime.adapter.sites import Group
from inkling_runtime.errors import format_count

_SHOWN = 10
_DONE = {Action.CONVERT: "converted", Action.RESIZE: "resized", Action.MERGE: "merged"}


def render_check(check: Check) -> Text:
    """Return what was checked, what differs, and the answer."""
    text = Text()
    for label, value in _facts(check):
        text.append(f"{label:<8}", "bold").append(f"{printable(value)}\n")
    for title, lines in _lists(check):
        text.append(f"\n{title}\n", "bold")
        for line in lines[:_SHOWN]:
            text.append(f"  {printable(line)}\n")
        if len(lines) > _SHOWN:
            text.append(f"  and {len(lines) - _SHOWN:,} more\n")
    text.append("\n").append(summary(check), "bold green" if check.is_clean else "bold red")
    for folder in _changed_in_place(check):
        command = f"inkling convert-adapter {shell_word(folder)} --undo"
        text.append("\n`").append(f"{printable(folder)}` was converted in place since")
        text.append("\n  undo: ", "bold cyan").append(printable(command))
    return text


def _changed_in_place(check: Check) -> list[str]:
    """Return the folders that differ and whose conversion in place can be taken back."""
    found = [source.path for source in check.sources if source.in_place and not source.is_clean]
    return [str(check.folder), *found] if check.in_place and not check.is_as_recorded else found


def _facts(check: Check) -> Iterator[tuple[str, str]]:
    record = check.record
    yield "folder", f"{check.folder}: {record.dialect}, {_history(check)}"
    as_recorded = len(record.tensors) - sum(c.change is not Change.ADDED for c in check.tensors)
    counts = Counter(change.change for change in check.tensors)
    apart = "".join(f", {counts[change]:,} {change}" for change in Change if counts[change])
    yield "tensors", f"{as_recorded:,} of {len(record.tensors):,} as recorded{apart}"
    yield "config", _config_fact(check)
    if dropped := dropped_of(check.record):
        yield "dropped", f"{', '.join(dropped)}: left out when it was written"
    for source in check.sources:
        yield "source", _source_fact(source)
    yield "deltas", _delta_fact(check)


def _history(check: Check) -> str:
    record = check.record
    dialects = " and ".join(sorted({source.dialect for source in record.sources}))
    return f"{_DONE[record.action]} from {dialects} by inkling {record.inkling}"


def _config_fact(check: Check) -> str:
    if not check.config_differs:
        return "as recorded"
    if check.config_fault is not None:
        return f"differs; {check.config_fault}"
    count = len(check.config)
    what = f"{format_count(count, 'key')} that can change a delta" if count else "not in its effect"
    return f"differs, {what}"


def _source_fact(source: SourceCheck) -> str:
    if not source.is_there:
        return f"{source.path}: not there, not checked; `--source` says where it is"
    if source.is_clean:
        return f"{source.path}: as recorded"
    said = ["the config differs"] if source.config_differs else []
    if source.tensors:
        said.append(f"{format_count(len(source.tensors), 'tensor')} not as recorded")
    return f"{source.path}: {', '.join(said)}"


def _delta_fact(check: Check) -> str:
    if check.not_compared is not None:
        return f"not compared: {check.not_compared}"
    counts = Counter(delta.proven for delta in check.deltas)
    return counts_line({proven: counts[proven] for proven in reversed(Proven) if counts[proven]})


def _lists(check: Check) -> Iterator[tuple[str, list[str]]]:
    """Yield a title and its lines for each thing that differs, one for each of a kind."""
    for change in Change:
        names = [one.name for one in check.tensors if one.change is change]
        if names:
            yield f"tensors {change}", names
    if check.config:
        yield (
            "keys of adapter_config.json",
            [f"{key.key}: {key.first} → {key.second}" for key in check.config],
        )
    for source in check.sources:
        if source.tensors:
            yield f"tensors of {source.path}", [f"{t.name}: {t.change}" for t in source.tensors]
    if apart := check.deltas_apart:
        yield (
            "deltas that are not the source's",
            [f"{delta.site}: {_apart(delta.relative)}" for delta in apart],
        )


def _apart(relative: float | None) -> str:
    return "not comparable" if relative is None else f"{relative:.3g} away, relative"


def summary(check: Check) -> str:
    """Return the answer in a sentence."""
    if not check.is_clean:
        return "This is not what was recorded."
    if check.not_compared is not None:
        return "As recorded."
    dropped = dropped_of(check.record)
    without = f" Left out: {', '.join(dropped)}." if dropped else ""
    return f"As recorded, and every delta is the source's.{without}"


def dropped_of(record: Record) -> list[str]:
    """Return the groups of modules that were left out when an adapter was written."""
    found = record.options.get("dropped")
    return [name for name in found if name in tuple(Group)] if isinstance(found, list) else []


def check_object(check: Check) -> dict[str, Any]:
    """Return the JSON object of a check, less `version` and `command`. Every key is always there.

    `found` and `expected` of a tensor are its SHA-256, or dtype and shape where these differ.
    `deltas.not_compared` says why there are none.
    """
    record = check.record
    return {
        "status": "same" if check.is_clean else "different",
        "folder": str(check.folder),
        "record": {
            "action": record.action,
            "inkling": record.inkling,
            "dialect": record.dialect,
            "dropped": dropped_of(record),
            "num_tensors": len(record.tensors),
        },
        "in_place": check.in_place,
        "tensors": _changes(check.tensors),
        "config": {
            "differs": check.config_differs,
            "fault": check.config_fault,
            "effect": [
                {"key": key.key, "found": key.second, "expected": key.first} for key in check.config
            ],
        },
        "sources": [
            {
                "path": source.path,
                "is_there": source.is_there,
                "in_place": source.in_place,
                "config_differs": source.config_differs,
                "tensors": _changes(source.tensors),
            }
            for source in check.sources
        ],
        "deltas": {
            "not_compared": check.not_compared,
            "modules": [
                {"site": delta.site, "proven": delta.proven, "relative": delta.relative}
                for delta in check.deltas
            ],
        },
    }


def _changes(changes: Sequence[TensorChange]) -> list[dict[str, Any]]:
    return [
        {
            "name": change.name,
            "change": change.change,
            "found": change.found,
            "expected": change.expected,
        }
        for change in changes
    ]
