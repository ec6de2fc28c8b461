"""The one place that writes: stdout gets the answer, stderr everything else.

Commands hand values to an `Output`; rendering is in `render/`. JSON, SARIF and annotations never
go through rich, which would wrap them and read brackets as markup. A reader that closes the pipe
early (`| head`) ends the writing quietly, not the command.
"""

import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TextIO

from rich.console import Console
from rich.text import Text

from inkling_cli.checks.finding import Report
from inkling_cli.render.findings import render_concise, render_full
from inkling_cli.render.github import render_github
from inkling_cli.render.json_report import report_object
from inkling_cli.render.printable import printable
from inkling_runtime.errors import InklingError


class OutputFormat(StrEnum):
    """How findings are shown."""

    FULL = "full"
    CONCISE = "concise"
    JSON = "json"
    GITHUB = "github"
    SARIF = "sarif"


class PlainFormat(StrEnum):
    """How an answer without findings is shown."""

    FULL = "full"
    JSON = "json"


class Output:
    """Where a command's answer goes."""

    def __init__(
        self, command: str, output_format: OutputFormat | PlainFormat = OutputFormat.FULL
    ) -> None:
        self.command = command
        self.is_json = output_format.value == "json"
        self.format = OutputFormat(output_format.value)

    @property
    def width(self) -> int | None:
        """The columns of the terminal; None where nobody reads along."""
        return _terminal_width(sys.stdout)

    def show_report(
        self,
        report: Report,
        checked: str,
        details: Mapping[str, Any] | None = None,
        outcomes: Sequence[str] = (),
        head: Text | None = None,
    ) -> None:
        """Show findings.

        Args:
            report: the findings, sorted.
            checked: what was looked at, for the last line: `1 launch of vLLM 0.33.0`.
            details: further keys of the JSON object.
            outcomes: what becomes of what was checked, a sentence each, for people.
            head: what people are to read first.
        """
        match self.format:
            case OutputFormat.FULL:
                if head is not None:
                    self._print(head)
                self._print(render_full(report, checked, _terminal_width(sys.stdout), outcomes))
            case OutputFormat.CONCISE:
                self._print(render_concise(report, checked))
            case OutputFormat.JSON:
                self._print_json(report_object(report, details or {}))
            case OutputFormat.GITHUB:
                _write(sys.stdout, render_github(report))
            case OutputFormat.SARIF:
                self._print_json(_sarif_object(report))

    def show(self, text: Text | str, data: Mapping[str, Any]) -> None:
        """Show an answer without findings: `text` to people, `data` as the JSON object."""
        if self.is_json:
            self.show_data(data)
        else:
            self._print(Text(text) if isinstance(text, str) else text)

    def write(self, text: str) -> None:
        """Write a part of an answer for people, as it comes; nothing where JSON is wanted."""
        if text and not self.is_json:
            _write(sys.stdout, text)

    def show_data(self, data: Mapping[str, Any]) -> None:
        """Show the JSON object of an answer that people got by `write`."""
        if self.is_json:
            self._print_json({"version": 1, "command": self.command, **data})

    def note(self, message: str) -> None:
        """Say something beside the answer, on stderr."""
        self._print_labelled("note", "bold", message)

    def warn(self, message: str) -> None:
        """Warn beside the answer, on stderr."""
        self._print_labelled("warning", "bold yellow", message)

    @contextmanager
    def progress(self, total_bytes: int) -> Iterator[Callable[[int], None]]:
        """Yield a function that takes bytes done; shown on stderr, on a terminal only."""
        if not sys.stderr.isatty():
            yield lambda done: None
            return
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        console = Console(file=sys.stderr, markup=False, highlight=False)
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=total_bytes)
            yield lambda done: bar.advance(task, done)

    @contextmanager
    def counted(self, total: int, unit: str) -> Iterator[Callable[[int, str], None]]:
        """Yield a function that takes how many are done and what else there is to say.

        Shown on stderr, on a terminal only.
        """
        if not sys.stderr.isatty():
            yield lambda done, text: None
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Remaining

        columns = (BarColumn(), MofNCompleteColumn(), TextColumn(unit), Remaining())
        console = Console(file=sys.stderr, markup=False, highlight=False)
        text_column = TextColumn("{task.fields[text]}", markup=False)
        with Progress(*columns, text_column, console=console, transient=True) as bar:
            task = bar.add_task("", total=total, text="")
            yield lambda done, text: bar.update(task, completed=done, text=text)

    def show_error(self, message: str, hint: str | None = None) -> None:
        """Say on stderr that the command could not do what was asked, and what to do."""
        self._print_labelled("error", "bold red", message)
        if hint:
            self._print_labelled("hint", "bold cyan", hint)

    def show_inkling_error(self, error: InklingError) -> None:
        """Show an error of the library."""
        self.show_error(error.message, error.hint)

    def _print(self, text: Text) -> None:
        _write(sys.stdout, _styled(text, sys.stdout))

    def _print_labelled(self, label: str, style: str, message: str) -> None:
        text = Text.assemble((f"{label}:", style), " ", printable(message))
        _write(sys.stderr, _styled(text, sys.stderr))

    def _print_json(self, value: Mapping[str, Any]) -> None:
        _write(sys.stdout, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _sarif_object(report: Report) -> dict[str, Any]:
    """Return the SARIF log; it knows every rule, whose import the other formats are spared."""
    from inkling_cli.render.sarif import sarif_object

    return sarif_object(report)


def _terminal_width(stream: TextIO) -> int | None:
    """Return the width to wrap at; None where nobody reads along and lines stay whole."""
    return Console(file=stream).width if stream.isatty() else None


def _styled(text: Text, stream: TextIO) -> str:
    """Return a text as it is written to a stream: with colours where the stream takes them."""
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    console = Console(file=stream, markup=False, highlight=False, emoji=False, color_system=colours)
    with console.capture() as capture:
        console.print(text, soft_wrap=True)
    return capture.get()


def _write(stream: TextIO, text: str) -> None:
    """Write and flush; a closed pipe swallows the rest, characters it lacks are escaped."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        silence(stream)


def open_streams() -> None:
    """Give a stream that was closed before the start (`>&-`) a place to write to: nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, nowhere)


def silence(stream: TextIO) -> None:
    """Send all further writing to a stream nowhere, the interpreter's last flush included."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
