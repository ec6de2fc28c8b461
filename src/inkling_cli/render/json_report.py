"""Findings as the JSON object that every command with findings prints.

Its version rises when a key changes its meaning or goes; new keys may come at any time.
"""

from collections.abc import Mapping
from typing import Any

from inkling_cli.checks.finding import Finding, Report

REPORT_VERSION = 1


def report_object(report: Report, details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object of a report, with a command's own keys after the common ones."""
    return {
        "version": REPORT_VERSION,
        "command": report.command,
        "status": report.status,
        "findings": [finding_object(finding) for finding in report.findings],
        **details,
    }


def finding_object(finding: Finding) -> dict[str, Any]:
    """Return the object of one finding. Every key is always there; unknown values are null."""
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "engine": finding.engine,
        "engine_version": finding.engine_version,
        "message": finding.message,
        "help": finding.help,
        "fix": finding.fix,
        "location": {
            "file": finding.location.file,
            "line": finding.location.line,
            "key": finding.location.key,
        },
    }
