"""Reads what `parse/` parses: a launch file, standard input, and the files that they name."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

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
from inkling_cli.checks.launch.parse.config import parse_config
from inkling_cli.checks.launch.parse.env_file import parse_variables
from inkling_cli.checks.launch.parse.given import NOTHING, Given
from inkling_cli.checks.launch.parse.launches import merge_config, parse_launches, parse_words
from inkling_cli.checks.launch.text.source import FileText
from inkling_cli.checks.launch.text.yaml_nodes import read_documents
from inkling_runtime.errors import InklingError

_MAX_BYTES = 1_000_000
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class LaunchSource:
    """The text of `inkling check-config`'s argument.

    Attributes:
        name: of the file, or what stands for it.
        text: the whole text; of a command the line that its words make.
        path: where it was read and can be written; None for commands and standard input.
        prefix: what stands ahead of the text in the file: a byte order mark.
    """

    name: str
    text: str
    path: Path | None = None
    prefix: str = ""


def read_source(words: Sequence[str]) -> LaunchSource:
    """Return what the arguments are: a command, a file, or `-`.

    Raises:
        InklingError: nothing there, or not text.
    """
    if list(words) == [""]:
        raise InklingError("the launch is an empty text, expected a file, `-` or `-- COMMAND`")
    if len(words) == 1 and words[0] == "-":
        return _source(_decode(sys.stdin.buffer.read(_MAX_BYTES + 1), STANDARD_INPUT))
    if len(words) == 1 and _looks_like_file(words[0]):
        hint = "a command goes after `--`: `inkling check-config -- …`"
        return _source(_read_text(words[0], hint), words[0], Path(words[0]))
    return LaunchSource(COMMAND_LINE, shlex.join(words))


def _source(text: str, name: str = STANDARD_INPUT, path: Path | None = None) -> LaunchSource:
    bare = text.removeprefix(_BYTE_ORDER_MARK)
    return LaunchSource(name, bare, path, text[: len(text) - len(bare)])


def launches_of(source: LaunchSource, given: Given = NOTHING) -> tuple[Launch, ...]:
    """Return the launches of a source; at least one.

    Raises:
        InklingError: no launch, or a file that it names is malformed.
    """
    if source.name == COMMAND_LINE:
        launches: tuple[Launch, ...] = (parse_words(shlex.split(source.text), given),)
    else:
        launches = parse_launches(source.text, source.name, given, _Beside(source.path).read)
    return tuple(_with_config(launch) for launch in launches)


@dataclass(frozen=True, slots=True)
class _Beside:
    """Reads files beside a launch's; none are beside standard input."""

    path: Path | None

    def read(self, name: str) -> str | None:
        beside = None if self.path is None else self.path.parent / name
        if beside is None or not beside.is_file():
            return None
        return _read_text(str(beside)).removeprefix(_BYTE_ORDER_MARK)


def read_environment(
    inherited: Mapping[str, str], given: Sequence[str], files: Sequence[str] = ()
) -> dict[str, Variable]:
    """Return the variables that a launch starts with.

    Args:
        inherited: the environment of this process, if the user wants it.
        given: the values of `--env NAME=VALUE`; they win over all others.
        files: env files; they win over what is inherited.

    Raises:
        InklingError: a value of `--env` has no `=`, or a file is no env file.
    """
    variables = {
        name: Variable(name, value, Location(ENVIRONMENT, key=name))
        for name, value in inherited.items()
    }
    for name in files:
        variables |= parse_variables(FileText(_read_text(name), name))
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise InklingError(f"`--env {item}` has no `=`, expected `--env NAME=VALUE`")
        variables[name] = Variable(name, value, Location(COMMAND_LINE, key=name))
    return variables


def _looks_like_file(word: str) -> bool:
    path = Path(word)
    return path.exists() or "/" in word or bool(path.suffix)


def _read_text(name: str, hint: str | None = None) -> str:
    try:
        with Path(name).open("rb") as file:
            return _decode(file.read(_MAX_BYTES + 1), name)
    except FileNotFoundError as error:
        raise InklingError(f"`{name}` does not exist", hint) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InklingError(f"`{name}` cannot be read: {reason}") from error


def _decode(content: bytes, name: str) -> str:
    if len(content) > _MAX_BYTES:
        raise InklingError(f"`{name}` is larger than {_MAX_BYTES} bytes, which no launch is")
    try:
        text = content.decode("utf-8")
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
    file = FileText(_read_text(name).removeprefix(_BYTE_ORDER_MARK), name)
    documents = read_documents(file)
    if len(documents) != 1:
        raise InklingError(f"`{name}` holds {len(documents)} documents, expected one mapping")
    given = Given(engine=launch.engine, version=launch.image_version)
    return merge_config(launch, parse_config(file, documents[0], given))
