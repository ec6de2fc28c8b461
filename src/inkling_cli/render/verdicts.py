"""What `inkling check-adapter` says of adapters: a table of verdicts, and the JSON object."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from inkling_cli.checks.effect import Fate, by_reason
from inkling_cli.checks.verdicts.judging import Judgement
from inkling_cli.checks.verdicts.verdict import Outcome, Verdict
from inkling_cli.render.findings import indented
from inkling_cli.render.inspection import format_ranges, layers_by_kind
from inkling_cli.render.printable import printable
from inkling_cli.render.values import render_values, values_object
from inkling_runtime.errors import format_count, format_names

_STYLES = {
    Outcome.APPLIED: "bold green",
    Outcome.PARTIAL: "bold red",
    Outcome.NONE: "bold red",
    Outcome.REFUSED: "bold red",
    Outcome.NOT_CHECKED: "bold yellow",
}
_SHOWN_REASONS = 6
_LAYER = re.compile(r"(.*\blayers\.)(\d+)(\..*)")


def in_words(value: str) -> str:
    """Return a fate or an outcome for people: `not checked`."""
    return value.replace("_", " ")


def what_was_checked(judged: Sequence[Judgement]) -> str:
    """Return the subjects in words: `82 modules of 2 adapters for vLLM 0.33.0`."""
    modules = sum(_num_modules(judgement) for judgement in judged)
    of = f" of {len(judged)} adapters" if len(judged) > 1 else ""
    consumers = dict.fromkeys(map(display_name, (v for j in judged for v in j.verdicts)))
    checked = f"{format_count(modules, 'module')}{of} for {', '.join(consumers)}"
    missing = dict.fromkeys(what for j in judged for v in j.verdicts for what in v.not_checked)
    return f"{checked}; not checked: {'; '.join(missing)}" if missing else checked


def display_name(verdict: Verdict) -> str:
    """Return the consumer in words, with the version that is judged."""
    return " ".join(filter(None, (verdict.consumer.display_name, verdict.version)))


def _num_modules(judgement: Judgement) -> int:
    """Return how many modules were judged; one that the dialect does not have is one of them."""
    subject = judgement.subject
    understood = 0 if subject is None else len(subject.adapter.modules)
    judged = (sum(effect.is_meant for effect in v.effects) for v in judgement.verdicts)
    return max(understood, *judged)


def render_verdicts(judged: Sequence[Judgement], width: int | None = None) -> Text:
    """Return for each adapter a line for each consumer, what is not applied, and the launches.

    Reasons are wrapped at `width` if given; launches stay whole, to be copied.
    """
    text = Text()
    for judgement in judged:
        text.append(printable(str(judgement.folder.path)), "bold")
        text.append(f"{_what_it_is(judgement)}\n")
        for verdict in judgement.verdicts:
            text.append_text(_line(verdict))
            for line in _lost(verdict):
                text.append(indented(line, "    ", width))
        for line in _notes(judgement.verdicts):
            text.append(f"  {printable(line)}\n", "dim")
        subject = judgement.subject
        if subject is not None and subject.values is not None:
            text.append("\n").append_text(render_values(subject.values))
    return text


def _what_it_is(judgement: Judgement) -> str:
    """Return the adapter in a few words, and how much of the base model it adapts."""
    subject = judgement.subject
    if subject is None:
        return ""
    adapter, coverage = subject.adapter, subject.coverage
    understood, modules = len(adapter.modules), _num_modules(judgement)
    of = f"{understood} of " if understood < modules else ""
    words = f": {of}{format_count(modules, 'module')} in the {adapter.dialect.name} dialect"
    if coverage is None:
        return words
    total = len(coverage.fitting) + len(coverage.missing) + len(coverage.misfits)
    words += f", {len(coverage.fitting)} of {total} places of the base model adapted"
    missing = format_names(layers_by_kind(coverage.missing))
    return f"{words} (not: {missing})" if coverage.fitting and coverage.missing else words


def _line(verdict: Verdict) -> Text:
    outcome = verdict.outcome
    text = Text(f"  {display_name(verdict):<18}")
    text.append(f"{in_words(outcome.value):<13}", _STYLES[outcome])
    text.append(_counts(verdict))
    text.rstrip()
    return text.append("\n")


def _counts(verdict: Verdict) -> str:
    if verdict.outcome is Outcome.REFUSED:
        return "" if verdict.stage is None else f"at {verdict.stage}"
    counts = [(fate, len(verdict.modules(fate))) for fate in Fate]
    parts = [f"{count} {in_words(fate.value)}" for fate, count in counts if count]
    if len(parts) == 1:
        return f"all {format_count(len(verdict.effects), 'module')}"
    return ", ".join(parts)


def _lost(verdict: Verdict) -> Iterator[str]:
    """Yield a line for each reason for which modules are not applied, the first few of them."""
    groups = [
        (fate, reason, modules)
        for (fate, _, reason), modules in by_reason(verdict.effects).items()
        if reason and (fate is not Fate.NOT_CHECKED or not verdict.not_checked)
    ]
    is_whole = verdict.stage is not None
    for fate, reason, modules in () if is_whole else groups[:_SHOWN_REASONS]:
        yield f"{in_words(fate.value)}: {format_names(shorten(modules))}: {reason}"
    if len(groups) > _SHOWN_REASONS and not is_whole:
        yield f"and {len(groups) - _SHOWN_REASONS} more reasons, all in `--output-format json`"


def shorten(modules: Sequence[str]) -> list[str]:
    """Return module names with those alike in all layers in one: `layers.1-2,5.attn.wq_du`."""
    layers: dict[tuple[str, str], list[int]] = {}
    for module in modules:
        match = _LAYER.match(module)
        before, number, after = match.groups() if match else (module, "", "")
        found = layers.setdefault((before, after), [])
        if number:
            found.append(int(number))
    return [
        f"{before}{format_ranges(sorted(numbers))}{after}"
        for (before, after), numbers in layers.items()
    ]


def _notes(verdicts: Sequence[Verdict]) -> Iterator[str]:
    for verdict in verdicts:
        if verdict.launch is not None:
            slot = sum(verdict.slot_bytes.values())
            room = f" ({_size(slot)} for a slot on each GPU)" if slot else ""
            yield f"launch assumed for {verdict.consumer.value}{room}: {verdict.launch}"


def _size(count: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"


def judgement_details(judged: Sequence[Judgement]) -> dict[str, Any]:
    """Return the keys of the JSON object beside the findings."""
    details: dict[str, Any] = {
        "adapters": [_adapter_object(judgement) for judgement in judged],
        "verdicts": [_verdict_object(v) for judgement in judged for v in judgement.verdicts],
    }
    if len(judged) == 1:
        (only,) = details["adapters"]
        details = {"adapter": only["path"], "dialect": only["dialect"], **details}
    return details


def _adapter_object(judgement: Judgement) -> dict[str, Any]:
    subject = judgement.subject
    values = None if subject is None else subject.values
    base = None
    if subject is not None and subject.coverage is not None:
        coverage = subject.coverage
        base = {
            "adapted": [str(site) for site in coverage.fitting],
            "not_adapted": [str(site) for site in coverage.missing],
            "misfits": [str(misfit.site) for misfit in coverage.misfits],
            "surplus": [str(site) for site in coverage.surplus],
        }
    return {
        "path": str(judgement.folder.path),
        "dialect": None if subject is None else subject.adapter.dialect.name,
        "base_model": base,
        "values": None if values is None else values_object(values),
    }


def _verdict_object(verdict: Verdict) -> dict[str, Any]:
    return {
        "adapter": verdict.adapter,
        "engine": verdict.consumer.value,
        "engine_version": verdict.version,
        "verdict": verdict.outcome.value,
        "stage": None if verdict.stage is None else verdict.stage.value,
        "modules": {fate.value: verdict.modules(fate) for fate in Fate},
        "reasons": [
            {"fate": fate.value, "cause": cause, "message": reason, "modules": modules}
            for (fate, cause, reason), modules in by_reason(verdict.effects).items()
        ],
        "requires": {"flags": dict(verdict.requires.flags), "env": dict(verdict.requires.env)},
        "launch": verdict.launch,
        "slot_bytes": dict(verdict.slot_bytes),
        "not_checked": list(verdict.not_checked),
    }
