"""Check a launch given as text, the way `inkling check-config` does."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from inkling_cli.checks.finding import Finding, Location, sort_findings
from inkling_cli.checks.launch.judge import Judge
from inkling_cli.checks.launch.launch import Launch
from inkling_cli.checks.launch.parse.adapter_refs import parse_given_adapters
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.parse.launches import parse_launches, parse_words
from inkling_cli.checks.launch.read import read_source


def launch_of(command: str) -> Launch:
    """Return the launch of one command's words."""
    return parse_words(shlex.split(command))


def launches_in(text: str, file: str = "serve.sh") -> tuple[Launch, ...]:
    """Return the launches in a file's text."""
    return parse_launches(text, file)


def check(
    text: str,
    folder: Path,
    file: str | None = None,
    lora: Sequence[str] = (),
    engine_version: str | None = None,
    gpu_memory: int | None = None,
) -> tuple[Finding, ...]:
    """Return the findings on a command, or on a file with this text."""
    words = shlex.split(text)
    if file is not None:
        (folder / file).write_text(text)
        words = [str(folder / file)]
    adapters = parse_given_adapters(lora, Location(key="--lora"))
    judge = Judge(Given(version=engine_version, gpu_memory=gpu_memory), None, adapters)
    judged = judge.source(read_source(words))
    return sort_findings(finding for launch in judged for finding in launch.findings)
