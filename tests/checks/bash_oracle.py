"""What bash starts when it runs a script, beside what was read in it.

Programs of the servers' names stand on PATH and record how they are called. A value that only
running tells must be said to be unknown; it is not compared.
"""

import itertools
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from inkling_cli.checks.launch.fix.fixing import fix_text
from inkling_cli.checks.launch.judge import Judge
from inkling_cli.checks.launch.launch import Launch, ProblemKind
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.parse.launches import parse_launches, parse_words
from inkling_cli.checks.launch.parse.no_launch import NoLaunchError
from inkling_cli.checks.launch.read import LaunchSource

BASH = shutil.which("bash")

PROGRAMS = ("vllm", "sglang", "python3", "docker")
RECORDER = """\
#!/bin/sh
{ printf '%s\\0' "$#" "${0##*/}" "$@"; env -0; } > "${0%/*}/../started/$$"
"""
OURS = re.compile(r"(?:VLLM|SGLANG|INKLING)_\w+")


@dataclass(frozen=True)
class Started:
    """A server that bash started: its words, and the variables that it sees."""

    words: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]


@cache
def programs() -> tempfile.TemporaryDirectory:
    """Return a folder with the recording programs, removed at the end of the run."""
    folder = tempfile.TemporaryDirectory(prefix="inkling-bash-")
    for name in PROGRAMS:
        path = Path(folder.name) / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(RECORDER)
        path.chmod(0o755)
    (Path(folder.name) / "started").mkdir()
    return folder


def run_in_bash(script: str) -> list[Started]:
    """Return what bash starts when it runs a script."""
    folder = Path(programs().name)
    path = f"{folder / 'bin'}:{os.defpath}:/usr/bin:/bin"
    subprocess.run(
        [str(BASH), "--norc", "-c", script + "\nwait\n"],
        env={"PATH": path},
        cwd=folder,
        capture_output=True,
        timeout=20,
        stdin=subprocess.DEVNULL,
    )
    found = []
    for record in (folder / "started").iterdir():
        count, *fields = record.read_bytes().decode().split("\0")
        words = fields[: int(count) + 1]
        entries = (item.partition("=") for item in fields[int(count) + 1 : -1])
        found.append(_started(words, {name: value for name, _, value in entries}))
        record.unlink()
    return [started for started in found if started is not None]


def _started(words: list[str], variables: dict[str, str]) -> Started | None:
    """Return the server; of `docker run -e …` the variables that it hands on."""
    if words[0] == "docker":
        handed = [word for before, word in itertools.pairwise(words) if before == "-e"]
        variables = {
            name: value if equals else variables[name]
            for name, equals, value in (word.partition("=") for word in handed)
            if equals or name in variables
        }
    ours = {name: value for name, value in variables.items() if OURS.fullmatch(name)}
    return Started(tuple(words), tuple(sorted(ours.items())))


Said = tuple[object, ...]


def said(launch: Launch) -> Said:
    """Return what a launch says: its model, its options in order, its adapters."""
    uses = tuple((use.name, use.enabled, use.values) for use in launch.uses)
    adapters = tuple((adapter.name, adapter.path) for adapter in launch.adapters)
    kinds = {p.kind for p in launch.problems if p.kind is not ProblemKind.UNKNOWN_SHELL_VALUE}
    return launch.model, uses, adapters, tuple(sorted(kind.value for kind in kinds))


def variables_of(launch: Launch) -> dict[str, str]:
    return {
        name: variable.value for name, variable in launch.variables.items() if OURS.fullmatch(name)
    }


def has_unknown(launch: Launch) -> bool:
    return any(launch.problems_of(ProblemKind.UNKNOWN_SHELL_VALUE))


def read(script: str) -> tuple[Launch, ...]:
    try:
        return parse_launches(script, "serve.sh")
    except NoLaunchError:
        return ()


def agrees(launch: Launch, started: Started) -> bool:
    """Return whether a launch that was read is what bash started, but for what is unknown."""
    real = parse_words(started.words)
    ours, theirs = variables_of(launch), dict(started.variables)
    known = {name: value for name, value in ours.items() if not is_unknown(value)}
    if ours.keys() != theirs.keys() or any(theirs[name] != known[name] for name in known):
        return False
    if not has_unknown(launch):
        return said(launch) == said(real)
    uses = Counter((use.name, use.enabled, use.values) for use in real.uses)
    certain = [use for use in launch.uses if not any(map(is_unknown, use.values))]
    return not Counter((use.name, use.enabled, use.values) for use in certain) - uses


def fixed(script: str) -> str:
    """Return a script with all changes that are safe."""
    source = LaunchSource("serve.sh", script)
    return fix_text(script, partial(Judge().text, source)).text


def compare(script: str) -> None:
    """Assert that a script was read as bash runs it."""
    launches, started = list(read(script)), run_in_bash(script)
    for real in started:
        found = next((launch for launch in launches if agrees(launch, real)), None)
        assert found is not None, (script, real, [(said(x), variables_of(x)) for x in launches])
        launches.remove(found)
    assert not launches, (script, started)
