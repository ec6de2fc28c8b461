"""A finding: a defect of an input, as data.

Never raised and never printed here. Rules yield findings, a report collects them, `render` and
`output` show them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from inkling_cli.checks.stage import Stage


class Severity(StrEnum):
    """How bad it is.

    error: the launch or the load fails, or the output is silently wrong;
    warning: silently ignored, slower or surprising; info: worth knowing.
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Location:
    """Where a finding lies. `line` counts from 1; any part may be unknown."""

    file: str | None = None
    line: int | None = None
    key: str | None = None
    """An option, an environment variable, a config key or a tensor name."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file or ""
        if self.key:
            return f"{place} `{self.key}`" if place else f"`{self.key}`"
        return place


@dataclass(frozen=True, slots=True)
class Change:
    """What would remedy a finding of a launch, in the engine's terms.

    Attributes:
        options: canonical option → value, values of a list between blanks, nothing for a switch.
        variables: environment variable → value.
        remove: options to leave out.
        once: options of which only the last use, the one that counts, is kept.
        respell: an option as spelled → as it must be spelled.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    once: tuple[str, ...] = ()
    respell: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect: the rule that saw it, what is and what was expected, and the remedy apart."""

    code: str
    name: str
    severity: Severity
    message: str
    help: str | None = None
    location: Location = field(default_factory=Location)
    engine: str | None = None
    engine_version: str | None = None
    fix: dict[str, str | None] | None = None
    """What to set, by the input's own key names: `{"--max-cpu-loras": "4"}`; None removes."""
    change: Change | None = None
    """The same for `--fix`, where a launch can be changed safely."""
    stage: Stage | None = None
    """Where the engine meets it; None for what no engine meets."""


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of one run of a command."""

    command: str
    findings: tuple[Finding, ...]

    @property
    def status(self) -> str:
        """`clean` or `findings`, as in the JSON object."""
        return "findings" if self.findings else "clean"

    def has(self, *severities: Severity) -> bool:
        """Return whether any finding has one of these severities."""
        return any(finding.severity in severities for finding in self.findings)


_SEVERITY_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings in the order shown: worst first, then by code and place."""
    return tuple(
        sorted(
            findings,
            key=lambda f: (_SEVERITY_ORDER[f.severity], f.code, str(f.location), f.message),
        )
    )
