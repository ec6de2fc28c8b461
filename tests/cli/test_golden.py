"""What every command prints, whole: one file for each command line in `golden/`.

A file begins with the command line; the rest is the exit code, stdout and stderr. To add a case,
write a file with the command line alone and run `make golden`; review the diff.
"""

import io
import shlex
import sys
from pathlib import Path

import pytest

from inkling_cli.main import main

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(GOLDEN.glob("*.txt"))


def run(command: str, capsys, monkeypatch) -> str:
    """Return the command line and everything that running it shows."""
    words = shlex.split(command)
    if "<" in words:
        words, (file,) = words[: words.index("<")], words[words.index("<") + 1 :]
        content = io.BytesIO(Path(file).read_bytes())
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(content))
    while "=" in words[0]:
        monkeypatch.setenv(*words.pop(0).split("=", 1))
    assert words.pop(0) == "inkling"
    code = main(words)
    shown = capsys.readouterr()
    return (
        f"$ {command}\nexit code: {int(code)}\n"
        f"----- stdout -----\n{shown.out}----- stderr -----\n{shown.err}"
    )


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_command_prints_what_it_did(file, golden_update, capsys, monkeypatch, in_workspace):
    expected = file.read_text("utf-8")
    command = expected.partition("\n")[0].removeprefix("$ ")
    actual = run(command, capsys, monkeypatch)
    if golden_update:
        file.write_text(actual, "utf-8")
        return
    assert actual == expected, "review the difference, then `make golden`"


def test_there_are_cases_for_every_format():
    shown = "".join(file.read_text("utf-8").partition("\n")[0] for file in CASES)
    for name in ("concise", "json", "github", "sarif"):
        assert f"--output-format {name}" in shown
