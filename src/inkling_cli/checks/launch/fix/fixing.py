"""The text of a launch and its findings → the text without those that have a safe remedy.

One finding at a time: its change is planned, made, and read back. It stays only if the launch then
says what it said before but for that change, and the finding is gone; a change that is not exact
leaves its finding as it is.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from inkling_cli.checks.finding import Change, Finding, Severity
from inkling_cli.checks.launch.fix.edits import plan_edits, values_of
from inkling_cli.checks.launch.judge import Judged
from inkling_cli.checks.launch.launch import Launch
from inkling_cli.checks.launch.options.table import Arity, option_table
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.text.places import ScriptStatement
from inkling_cli.checks.launch.text.source import apply_edits
from inkling_runtime.errors import InklingError

_MAX_FIXES = 100
_Identity = tuple[object, ...]


JudgeText = Callable[[str], Sequence[Judged]]
"""Reads a text and checks the launches in it; raises InklingError where it holds none."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A text with all safe changes made, what they remedied, and what is left."""

    text: str
    fixed: tuple[Finding, ...]
    judged: tuple[Judged, ...]


def fix_text(text: str, judge: JudgeText) -> Fixed:
    """Return the corrected text of a launch; the very text where nothing can be corrected."""
    judged = tuple(judge(text))
    fixed: list[Finding] = []
    made: set[_Identity] = set()
    failed: set[_Identity] = set()
    while len(made) < _MAX_FIXES and (candidate := _next(judged, made | failed)):
        index, finding = candidate
        failed.add(_identity(index, finding))
        for new_text in _iter_changed(text, judged[index].subject, finding.change):
            after = _judge_again(new_text, judge)
            if after is not None and _is_exact(judged, after, index, finding):
                text, judged = new_text, after
                fixed.append(finding)
                made.add(_identity(index, finding))
                failed.clear()
                break
    return Fixed(text, tuple(fixed), judged)


def _next(judged: Sequence[Judged], tried: set[_Identity]) -> tuple[int, Finding] | None:
    """Return the next finding that has a change and was not tried yet, errors first."""
    for severity in (Severity.ERROR, Severity.WARNING):
        for index, launch in enumerate(judged):
            for finding in launch.findings:
                is_new = _identity(index, finding) not in tried
                if finding.severity is severity and finding.change and is_new:
                    return index, finding
    return None


def _identity(index: int, finding: Finding) -> _Identity:
    """Return what tells a finding apart while lines move."""
    return index, finding.code, finding.location.file, finding.location.key, finding.message


def _iter_changed(text: str, subject: LaunchSubject, change: Change | None) -> Iterator[str]:
    """Yield the texts that a change could make of a launch's, the most natural one first."""
    if change is None:
        return
    launches = [subject.launch]
    if isinstance(place := subject.launch.variable_place, ScriptStatement):
        launches.append(replace(subject.launch, variable_place=place.in_front()))
    for launch in launches:
        edits = plan_edits(launch, change, subject.described_version)
        changed = None if edits is None else apply_edits(text, edits)
        if changed is not None and changed != text:
            yield changed


def _judge_again(text: str, judge: JudgeText) -> tuple[Judged, ...] | None:
    try:
        return tuple(judge(text))
    except InklingError:
        return None


def _is_exact(
    before: Sequence[Judged], after: Sequence[Judged], index: int, finding: Finding
) -> bool:
    """Return whether a change did what it should and nothing else."""
    if len(before) != len(after) or finding.change is None:
        return False
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        now = meaning(new.subject.launch)
        is_same = number != index and now == meaning(old.subject.launch)
        if not is_same and now != _meaning_after(old.subject, finding):
            return False
    is_gone = (finding.code, finding.message) not in {
        (other.code, other.message) for other in after[index].findings
    }
    problems = _problems(after[index].subject.launch) - _problems(before[index].subject.launch)
    return is_gone and not problems


def _problems(launch: Launch) -> set[tuple[str, str]]:
    return {(problem.kind.value, problem.text) for problem in launch.problems}


Meaning = dict[str, object]


def meaning(launch: Launch) -> Meaning:
    """Return what a launch says, however it is written: options, variables, model."""
    found: Meaning = {"model": launch.model}
    for use in launch.uses:
        values = sorted(use.values) if len(use.values) > 1 else list(use.values)
        found[use.name] = (use.enabled, values)
    found.update({f"${name}": v.value for name, v in launch.variables.items()})
    return found


def _meaning_after(subject: LaunchSubject, finding: Finding) -> Meaning | None:
    """Return what a launch says once a finding's change is made; None of another engine's."""
    launch, change = subject.launch, finding.change
    if change is None or finding.engine not in (None, launch.engine):
        return None
    found = meaning(launch)
    table = option_table(launch.engine, subject.described_version)
    for name, value in change.options.items():
        spec = table.spec(name)
        values = values_of(spec, value)
        found[name] = (True, sorted(values) if spec.arity is Arity.MANY else values)
    for name in change.remove:
        spec_removed = table.match(name).spec
        if spec_removed is not None:
            found.pop(spec_removed.name, None)
    found.update({f"${name}": value for name, value in change.variables.items()})
    return found
