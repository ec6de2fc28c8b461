"""What the process returns, the same for every command."""

from enum import IntEnum, StrEnum

from inkling_cli.checks.finding import Report, Severity


class ExitCode(IntEnum):
    """0 done and clean, 1 done with findings, 2 could not be done, 130 interrupted."""

    CLEAN = 0
    FINDINGS = 1
    NOT_DONE = 2
    INTERRUPTED = 130


class FailOn(StrEnum):
    """The least severity that makes the exit code 1."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    NEVER = "never"


_COUNTING: dict[FailOn, tuple[Severity, ...]] = {
    FailOn.ERROR: (Severity.ERROR,),
    FailOn.WARNING: (Severity.ERROR, Severity.WARNING),
    FailOn.INFO: (Severity.ERROR, Severity.WARNING, Severity.INFO),
    FailOn.NEVER: (),
}


def exit_code_of(report: Report, fail_on: FailOn = FailOn.ERROR) -> ExitCode:
    """Return the exit code of a command that made this report."""
    return ExitCode.FINDINGS if report.has(*_COUNTING[fail_on]) else ExitCode.CLEAN
