"""The README's transcripts are what the commands print; `…` stands for what is left out."""

import re
import shlex
from pathlib import Path

from inkling_cli.main import main

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def transcripts():
    """Return each command of the console blocks with the lines that it is said to print."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line.strip():
                found[-1][1].append(line)
    return found


def test_transcripts_are_true(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for command, lines in transcripts():
        for part in command.split(" && "):
            words = shlex.split(part)
            if words[0] == "cd":
                monkeypatch.chdir(words[1])
            else:
                assert words[0] == "inkling"
                assert main(words[1:]) in (0, 1)
        printed = capsys.readouterr().out.splitlines()
        for line in lines:
            pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
            assert any(pattern.fullmatch(one) for one in printed), f"{command}: {line}"


def test_every_command_is_in_the_table():
    from inkling_cli.main import COMMANDS

    for name in COMMANDS:
        assert f"`inkling {name}" in README, name
