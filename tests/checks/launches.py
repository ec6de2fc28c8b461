"""Check a launch given as text, the way `inkling check-config` does."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from inkling_cli.checks.finding import Finding, Location, sort_findings
from inkling_cli.checks.launch import LAUNCH_RULES
from inkling_cli.checks.launch.adapter_refs import parse_given_adapters
from inkling_cli.checks.launch.launch import Launch
from inkling_cli.checks.launch.parse import parse_launches, parse_words
from inkling_cli.checks.launch.read import read_launches
from inkling_cli.checks.launch.subject import resolve_launch


def launch_of(command: str) -> Launch:
    """Return the launch of one command's words."""
    return parse_words(shlex.split(command), {})


def launches_in(text: str, file: str = "serve.sh") -> tuple[Launch, ...]:
    """Return the launches in a file's text."""
    return parse_launches(text, file, {})


def check(
    text: str,
    folder: Path,
    file: str | None = None,
    lora: Sequence[str] = (),
    engine_version: str | None = None,
) -> tuple[Finding, ...]:
    """Return the findings on a command, or on a file with this text."""
    if file is None:
        launches = read_launches(shlex.split(text), {})
    else:
        (folder / file).write_text(text)
        launches = read_launches([str(folder / file)], {})
    adapters = parse_given_adapters(lora, Location(key="--lora"))
    found: list[Finding] = []
    for launch in launches:
        subject = resolve_launch(launch, engine_version, None, adapters)
        found += LAUNCH_RULES.check(subject, subject.engine, subject.described_version)
    return sort_findings(found)
