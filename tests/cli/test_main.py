"""The frame of the command line: what any outcome of a command becomes."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer

from inkling_cli import main as frame
from inkling_cli.main import COMMANDS, load_command, main
from inkling_runtime.errors import InklingError

INKLING = [sys.executable, "-m", "inkling_cli.main"]


def run(*arguments: str, **options) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*INKLING, *arguments], capture_output=True, text=True, check=False, timeout=60, **options
    )


@pytest.fixture
def command(monkeypatch):
    """Return a function that makes `inkling try-it` do something."""

    def set_command(function):
        module = ModuleType("inkling_cli.commands.try_it")
        module.try_it, module.EXAMPLES = function, ("inkling try-it",)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(frame, "COMMANDS", {"try-it": "try_it:try_it"})

    return set_command


def raising(error: BaseException):
    def function() -> int:
        """Raise."""
        raise error

    return function


def returning(code: int):
    def function() -> int:
        """Return."""
        return code

    return function


@pytest.mark.parametrize("modules", [("torch", "triton", "transformers", "peft", "numpy")])
def test_the_command_line_imports_no_heavy_module(modules):
    program = f"import sys, inkling_cli.main; print([m for m in {modules} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("code", [0, 1, 2])
def test_returned_code_is_the_exit_code(code, command):
    command(returning(code))
    assert main(["try-it"]) == code


def test_error_is_shown_with_its_hint_and_without_traceback(command, capsys):
    command(raising(InklingError("`x` is 1, expected 2", "`inkling fix x`")))
    assert main(["try-it"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "error: `x` is 1, expected 2\nhint: `inkling fix x`\n"


def test_bug_is_named_and_its_traceback_only_shown_on_demand(command, capsys, monkeypatch):
    command(raising(KeyError("spam")))
    assert main(["try-it"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: a bug in inkling: KeyError: 'spam'\nhint: ")
    assert "Traceback" not in shown
    monkeypatch.setenv("INKLING_DEBUG", "1")
    assert main(["try-it"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Abort(), EOFError()])
def test_interruption_is_130_and_quiet(error, command, capsys):
    command(raising(error))
    assert main(["try-it"]) == 130
    assert "error" not in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--frob"], ["try-it", "--frob"], ["frob"], ["try-it", "x"]])
def test_usage_error_is_2_and_on_stderr(arguments, command, capsys):
    command(returning(0))
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert "--help` says what it takes" in shown.err


def test_control_characters_of_an_error_are_made_visible(command, capsys):
    command(raising(InklingError("`\x1b[31mred\n`")))
    main(["try-it"])
    assert capsys.readouterr().err == "error: `\\x1b[31mred\\n`\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_ends_with_its_examples(name, capsys):
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    _, examples = load_command(name)
    assert 2 <= len(examples) <= 3
    lines = [line.strip() for line in shown.splitlines()]
    assert lines[-len(examples) :] == list(examples)
    assert all(example.startswith(f"inkling {name}") for example in examples)


def test_console_program_passes_the_code_on():
    assert run("--version").returncode == 0
    done = run("explain", "no-such-rule")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")


@pytest.mark.parametrize(
    ("arguments", "code"), [(["explain"], 0), (["--help"], 0), (["check-config", "serve.sh"], 1)]
)
def test_closed_pipe_is_quiet(arguments, code, workspace):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*INKLING, *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            cwd=workspace,
            check=False,
            timeout=60,
        )
    finally:
        os.close(writer)
    assert done.stderr == b""
    assert done.returncode == code


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("output_format", ["full", "json"])
def test_a_full_device_is_an_error_and_no_bug(output_format, workspace):
    words = ["inspect", "adapters/released", "--output-format", output_format]
    program = [sys.executable, "-m", "inkling_cli.main", *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            program, cwd=workspace, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "the device is full" in done.stderr


def test_encoding_without_a_character_escapes_it(workspace):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = run("explain", "SGL401", env=environment)
    assert done.returncode == 0
    assert "\\u221a" in done.stdout
