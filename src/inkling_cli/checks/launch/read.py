"""Reads what `parse.py` parses: a launch file, standard input, and the file of `--config`."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.launch import (
    COMMAND_LINE,
    ENVIRONMENT,
    STANDARD_INPUT,
    Launch,
    Problem,
    ProblemKind,
    Variable,
)
from inkling_cli.checks.launch.parse import merge_config, parse_launches, parse_words
from inkling_cli.checks.launch.parse_config import parse_config
from inkling_runtime.errors import InklingError

_MAX_BYTES = 1_000_000


def read_launches(
    words: Sequence[str], environment: Mapping[str, Variable], engine: Engine | None = None
) -> tuple[Launch, ...]:
    """Return the launches of `inkling check-config`'s arguments: a command, a file, or `-`.

    Raises:
        InklingError: nothing there, not text, or no launch.
    """
    if len(words) == 1 and (words[0] == "-" or _looks_like_file(words[0])):
        text, file = _read_text(words[0])
        launches = parse_launches(text, file, environment, engine)
    else:
        launches = (parse_words(words, environment, engine),)
    return tuple(_with_config(launch) for launch in launches)


def read_environment(inherited: Mapping[str, str], given: Sequence[str]) -> dict[str, Variable]:
    """Return the variables that a launch starts with: inherited ones below `--env K=V`.

    Raises:
        InklingError: a value of `--env` has no `=`.
    """
    variables = {
        name: Variable(name, value, Location(ENVIRONMENT, key=name))
        for name, value in inherited.items()
    }
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise InklingError(f"`--env {item}` has no `=`, expected `--env NAME=VALUE`")
        variables[name] = Variable(name, value, Location(COMMAND_LINE, key=name))
    return variables


def _looks_like_file(word: str) -> bool:
    path = Path(word)
    return path.exists() or "/" in word or bool(path.suffix)


def _read_text(name: str) -> tuple[str, str]:
    if name == "-":
        return _decode(sys.stdin.buffer.read(_MAX_BYTES + 1), STANDARD_INPUT), STANDARD_INPUT
    try:
        with Path(name).open("rb") as file:
            return _decode(file.read(_MAX_BYTES + 1), name), name
    except FileNotFoundError as error:
        raise InklingError(
            f"`{name}` does not exist", "a command goes after `--`: `inkling check-config -- …`"
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InklingError(f"`{name}` cannot be read: {reason}") from error


def _decode(content: bytes, name: str) -> str:
    if len(content) > _MAX_BYTES:
        raise InklingError(f"`{name}` is larger than {_MAX_BYTES} bytes, which no launch is")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InklingError(f"`{name}` is not UTF-8 text, expected a launch") from error
    if "\0" in text:
        raise InklingError(f"`{name}` is not text, expected a launch")
    return text


def _with_config(launch: Launch) -> Launch:
    """Read the file that the launch gives to its engine's `--config`, if it is there."""
    name = launch.text("--config")
    if name is None:
        return launch
    if not Path(name).is_file():
        problem = Problem(ProblemKind.MISSING_CONFIG, name, launch.at("--config"))
        return replace(launch, problems=(*launch.problems, problem))
    text, file = _read_text(name)
    return merge_config(launch, parse_config(text, file, {}, launch.engine))
