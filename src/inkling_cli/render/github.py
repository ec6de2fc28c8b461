"""Findings as workflow commands, which GitHub shows as annotations of files."""

from inkling_cli.checks.finding import Finding, Report, Severity

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def render_github(report: Report) -> str:
    """Return one line for each finding; nothing for none."""
    return "".join(_annotation(finding) for finding in report.findings)


def _annotation(finding: Finding) -> str:
    place = finding.location
    properties = {"title": f"{finding.code} {finding.name}"}
    if place.file and not place.file.startswith("<"):
        properties = {"file": place.file, **properties}
        if place.line:
            properties = {"file": place.file, "line": str(place.line), **properties}
    listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    where = f" ({place})" if "file" not in properties and str(place) else ""
    message = finding.message + where + (f"\nhelp: {finding.help}" if finding.help else "")
    return f"::{_LEVELS[finding.severity]} {listed}::{_data(message)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
