"""A file of `NAME=value` lines → variables, or a launch of which nothing else is known.

Read as compose reads it: comments, `export`, quotes; no expansion.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.launch import Launch, LaunchForm, Variable
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.parse.no_launch import NoLaunchError
from inkling_cli.checks.launch.text.origins import WordOrigin
from inkling_cli.checks.launch.text.places import EnvFileEnd
from inkling_cli.checks.launch.text.source import FileText, whole_file
from inkling_runtime.errors import InklingError

_LINE = re.compile(
    r"[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][\w.-]*)[ \t]*=[ \t]*"
    r"(?P<value>'[^'\n]*'|\"(?:[^\"\\\n]|\\.)*\"|[^\n#]*?(?:(?<=\S)#[^\n#]*?)*)[ \t]*(?:#[^\n]*)?"
)
_COMMENT = re.compile(r"[ \t]*(?:#.*)?")
_BARE_NAME = re.compile(r"[ \t]*(?:export[ \t]+)?[A-Za-z_]\w*[ \t]*")
"""A variable that is handed on, if it is set; its value stands elsewhere."""
_COMMAND = re.compile(r"[^=\s]+=[^\s'\"]*\s.*\b(?:vllm|sglang)\b.*")
"""A command with assignments in front of it, in a file that no name calls an env file."""
_PREFIXES = {Engine.VLLM: ("VLLM_", "INKLING_", "LAMPORT_"), Engine.SGLANG: ("SGLANG_", "SGL_")}


def is_env_file(file: FileText) -> bool:
    """Return whether a file is named like an env file, or holds nothing but assignments."""
    name = PurePath(file.name).name
    if name == ".env" or name.startswith(".env.") or name.endswith(".env"):
        return True
    if PurePath(name).suffix in (".sh", ".bash", ".yaml", ".yml", ".json"):
        return False
    lines = [line for line in file.text.splitlines() if not _COMMENT.fullmatch(line)]
    is_command = any(map(_COMMAND.match, lines))
    return bool(lines) and not is_command and all(map(_LINE.fullmatch, lines))


def parse_variables(file: FileText) -> dict[str, Variable]:
    """Return the variables of an env file, the last of each name.

    Raises:
        InklingError: a line is neither an assignment nor a comment.
    """
    return {variable.name: variable for variable in _iter_variables(file)}


def _iter_variables(file: FileText) -> Iterator[Variable]:
    embedded = whole_file(file)
    position = 0
    for number, line in enumerate(embedded.text.split("\n"), 1):
        found = _LINE.fullmatch(line)
        if found:
            start, end = (position + offset for offset in found.span("value"))
            place = Location(file.name, number, found["name"])
            origin = WordOrigin(embedded, start, end)
            yield Variable(found["name"], _unquoted(found["value"]), place, origin=origin)
        elif not _COMMENT.fullmatch(line) and not _BARE_NAME.fullmatch(line):
            raise InklingError(
                f"`{file.name}:{number}` is `{line.strip()[:60]}`, expected `NAME=value`"
            )
        position += len(line) + 1


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1]
    if len(value) > 1 and value[0] == value[-1] == '"':
        return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), value[1:-1])
    return value


def parse_env_file(file: FileText, given: Given) -> Launch:
    """Return the launch of which an env file is all that is known.

    Raises:
        InklingError: a line is no assignment, or no variable tells the engine.
    """
    variables = parse_variables(file)
    engine = given.engine or _recognise(variables, file.name)
    return Launch(
        engine=engine,
        form=LaunchForm.ENV_FILE,
        program=(engine.value, "serve"),
        model=None,
        model_location=Location(file.name),
        uses=(),
        variables={**given.environment, **variables},
        adapters=(),
        problems=(),
        location=Location(file.name, 1),
        variable_place=EnvFileEnd(file),
    )


def _recognise(variables: dict[str, Variable], name: str) -> Engine:
    found = [
        engine
        for engine, prefixes in _PREFIXES.items()
        if any(variable.startswith(prefixes) for variable in variables)
    ]
    if len(found) != 1:
        raise NoLaunchError(
            f"`{name}` does not tell which engine it is for: it sets "
            f"{'variables of both' if found else 'no variable of either'}",
            "say which with `--engine vllm` or `--engine sglang`",
        )
    return found[0]
