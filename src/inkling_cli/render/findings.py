"""Findings for people: `full` with remedies, `concise` with one line each."""

import textwrap
from collections import Counter
from collections.abc import Sequence

from rich.text import Text

from inkling_cli.checks.finding import Finding, Report, Severity
from inkling_cli.render.printable import printable

_STYLES = {
    Severity.ERROR: "bold red",
    Severity.WARNING: "bold yellow",
    Severity.INFO: "bold blue",
}
_NOUNS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def render_full(
    report: Report, checked: str, width: int | None, outcomes: Sequence[str] = ()
) -> Text:
    """Return each finding with place and remedy, then a summary; wrapped at `width` if given.

    What becomes of what was checked (`outcomes`) is left out where there is nothing to tell.
    """
    text = Text()
    for finding in report.findings:
        style = _STYLES[finding.severity]
        text.append(f"{finding.severity.value} {finding.code} {finding.name}", style)
        text.append("\n")
        text.append(indented(finding.message, "  ", width))
        if place := str(finding.location):
            text.append("  --> ", "cyan")
            text.append(f"{printable(place)}\n")
        if finding.help:
            text.append("  help: ", "bold cyan")
            text.append(indented(finding.help, "        ", width).removeprefix("        "))
        text.append("\n")
    text.append_text(_wrapped(_summary(report, checked), width))
    for line in outcomes if report.findings else ():
        text.append("\n" + indented(line, "", width).removesuffix("\n"))
    return text


def render_concise(report: Report, checked: str) -> Text:
    """Return one line for each finding, place first, then a summary."""
    text = Text()
    for finding in report.findings:
        text.append(f"{printable(str(finding.location))}: ")
        style = _STYLES[finding.severity]
        text.append(f"{finding.severity.value} {finding.code} {finding.name}", style)
        text.append(f": {printable(finding.message)}\n")
    return text.append_text(_summary(report, checked))


def _wrapped(text: Text, width: int | None) -> Text:
    """Return a one-line text with line breaks between words, its styles kept."""
    lines = indented(text.plain, "", width).removesuffix("\n")
    return Text(lines, spans=text.spans)


def indented(message: str, indent: str, width: int | None) -> str:
    """Return a message with its line end, between words on several lines where `width` is given."""
    message = printable(message)
    if width is None:
        return f"{indent}{message}\n"
    lines = textwrap.wrap(
        message,
        max(width, 40),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines) + "\n"


def _summary(report: Report, checked: str) -> Text:
    if not report.findings:
        return Text.assemble(("No findings", "bold green"), f" in {checked}.")
    return Text.assemble(("Found ", "bold"), f"{count_findings(report.findings)} in {checked}.")


def count_findings(findings: tuple[Finding, ...]) -> str:
    """Return how many there are of each severity: `2 errors and 1 note`."""
    counts = Counter(finding.severity for finding in findings)
    parts = [
        f"{counts[severity]} {noun}{'s' * (counts[severity] != 1)}"
        for severity, noun in _NOUNS.items()
        if counts[severity]
    ]
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
