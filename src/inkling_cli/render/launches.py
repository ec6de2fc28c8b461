"""What `inkling check-config` says of the launches themselves."""

from collections.abc import Sequence
from typing import Any

from inkling_cli.checks.finding import Finding, Severity
from inkling_cli.checks.launch.inputs import Checked
from inkling_cli.checks.launch.judge import Judged
from inkling_cli.checks.launch.launch import COMMAND_LINE
from inkling_cli.checks.launch.outcome import refusing_stage
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.stage import Stage
from inkling_cli.render.json_report import finding_object


def what_was_checked(checked: Checked) -> str:
    """Return the subjects in words: `1 launch (vLLM 0.33.0, 2 of 3 adapters read)`.

    Files that hold no launch come behind them: `, 3 other files`.
    """
    parts = []
    for subject in (launch.subject for launch in checked.judged):
        part = f"{subject.engine.display_name} {subject.version}"
        total = len(subject.adapters) + len(subject.unread)
        if total:
            read = len(subject.adapters)
            part += f", {read} of {total} adapter{'s' * (total != 1)} read"
        parts.append(part)
    plural = "es" * (len(parts) != 1)
    which = f" ({'; '.join(parts)})" if parts else ""
    count = len(checked.others)
    others = f", {count} other file{'s' * (count > 1)}" if count else ""
    return f"{len(parts)} launch{plural}{which}{others}"


def outcome_lines(checked: Checked) -> list[str]:
    """Return what becomes of each launch with its findings, its place in front if not alone."""
    lines = []
    for launch in checked.judged:
        place = launch.subject.launch.location
        prefix = f"{place.file}:{place.line}: " if len(checked.judged) > 1 else ""
        lines.append(prefix + _outcome_line(launch.subject, launch.findings))
    return lines


def _outcome_line(subject: LaunchSubject, findings: Sequence[Finding]) -> str:
    engine = f"{subject.engine.display_name} {subject.version}"
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    match refusing_stage(findings):
        case None if any(error.stage is None for error in errors):
            return f"Whether {engine} starts with this launch is not known."
        case None if errors:
            return f"{engine} starts with this launch, but does not serve it as meant."
        case None:
            return f"No error found keeps {engine} from starting."
        case Stage.ADAPTER_LOAD:
            return f"{engine} refuses an adapter of this launch at {Stage.ADAPTER_LOAD}."
        case (Stage.DYNAMIC_LOAD | Stage.FIRST_USE) as stage:
            return f"{engine} starts with this launch, but fails at {stage}."
        case stage:
            return f"{engine} refuses this launch at {stage}."


def corrected_text(checked: Checked) -> str:
    """Return the one corrected launch as it is printed: byte for byte, a command as a line."""
    ((source, fixed),) = checked.fixes
    return source.prefix + fixed.text + ("\n" if source.name == COMMAND_LINE else "")


def checked_object(checked: Checked) -> dict[str, Any]:
    """Return what came of all inputs as further keys of the JSON object."""
    found: dict[str, Any] = {"launches": list(map(_launch_object, checked.judged))}
    if checked.others:
        found["others"] = list(checked.others)
    if checked.fixes:
        found["fixed"] = [finding_object(finding) for finding in checked.fixed]
    if len(checked.fixes) == 1:
        found["text"] = checked.fixes[0][1].text
    return found


def _launch_object(judged: Judged) -> dict[str, Any]:
    """Return a launch as a part of the JSON object."""
    subject = judged.subject
    launch, model = subject.launch, subject.model
    unread = {id(entry.ref): entry for entry in subject.unread}
    return {
        "engine": subject.engine.value,
        "engine_version": subject.version,
        "location": {"file": launch.location.file, "line": launch.location.line},
        "container": launch.container,
        "outcome": _outcome_object(judged.findings),
        "model": {"ref": model.ref, "config": model.config_path, "is_inkling": model.is_inkling},
        "adapters": [
            {
                "name": ref.name,
                "path": ref.path,
                "at_startup": ref.at_startup,
                "is_read": id(ref) not in unread,
            }
            for ref in launch.adapters
        ],
    }


def _outcome_object(findings: Sequence[Finding]) -> dict[str, Any]:
    stage = refusing_stage(findings)
    return {"status": "refused" if stage else "starts", "stage": stage and stage.value}
