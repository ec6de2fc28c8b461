"""Findings as a SARIF 2.1.0 log, which code scanning services take."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

from inkling_cli.checks.catalog import find_rule
from inkling_cli.checks.finding import Finding, Location, Report, Severity
from inkling_runtime import __version__

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def sarif_object(report: Report) -> dict[str, Any]:
    """Return the log: one run, with the rules that it speaks of and a result for each finding."""
    codes = sorted({finding.code for finding in report.findings})
    by_code = {finding.code: finding for finding in report.findings}
    driver = {
        "name": "inkling",
        "version": __version__,
        "rules": [_rule(by_code[code]) for code in codes],
    }
    results = [_result(finding, codes.index(finding.code)) for finding in report.findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(finding: Finding) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": finding.code,
        "name": finding.name,
        "defaultConfiguration": {"level": _LEVELS[finding.severity]},
    }
    if rule := find_rule(finding.code):
        summary, _, body = rule.text.partition("\n\n")
        found["shortDescription"] = {"text": summary}
        found["fullDescription"] = {"text": rule.text}
        found["help"] = {"text": body or summary}
    return found


def _result(finding: Finding, index: int) -> dict[str, Any]:
    text = finding.message + (f"\nhelp: {finding.help}" if finding.help else "")
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": text},
    }
    if location := _location(finding.location):
        result["locations"] = [location]
    return result


def _location(place: Location) -> dict[str, Any]:
    location: dict[str, Any] = {}
    if place.file and not place.file.startswith("<"):
        location["physicalLocation"] = {"artifactLocation": {"uri": _uri(place.file)}}
        if place.line:
            location["physicalLocation"]["region"] = {"startLine": place.line}
    if place.key:
        location["logicalLocations"] = [{"name": place.key, "kind": "member"}]
    return location


def _uri(file: str) -> str:
    path = Path(file)
    if path.is_absolute():
        return path.as_uri()
    return quote(path.as_posix(), errors="surrogateescape")
