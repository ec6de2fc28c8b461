"""Text of any supported kind → launches. No I/O: `read.py` fetches the text.

Kinds: a shell script, a YAML or JSON file of options, a compose file, a Kubernetes manifest, an
env file, or the words of one command.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

from inkling_cli.checks.launch.launch import (
    COMMAND_LINE,
    Argument,
    Launch,
    LaunchForm,
    Variable,
)
from inkling_cli.checks.launch.parse.command import (
    Frame,
    Program,
    build_launch,
    find_image,
    find_program,
    with_adapters,
)
from inkling_cli.checks.launch.parse.compose import env_file_names, is_compose, parse_compose
from inkling_cli.checks.launch.parse.config import parse_config
from inkling_cli.checks.launch.parse.env_file import (
    is_env_file,
    parse_env_file,
    parse_variables,
)
from inkling_cli.checks.launch.parse.given import NOTHING, Given
from inkling_cli.checks.launch.parse.kubernetes import is_kubernetes, parse_kubernetes
from inkling_cli.checks.launch.parse.no_launch import NoLaunchError
from inkling_cli.checks.launch.parse.script import parse_nested, parse_script
from inkling_cli.checks.launch.parse.wrappers import place_behind_wrapper
from inkling_cli.checks.launch.text.origins import WordOrigin
from inkling_cli.checks.launch.text.places import CommandEnd, CommandStart
from inkling_cli.checks.launch.text.source import Embedded, FileText, whole_file
from inkling_cli.checks.launch.text.yaml_nodes import Document, read_documents
from inkling_runtime.errors import InklingError

_CONFIG_SUFFIXES = (".yaml", ".yml", ".json")
_SCRIPT_SUFFIXES = (".sh", ".bash", ".zsh")
_CONTAINER_KEYS = re.compile(r"^(?:apiVersion|services):", re.MULTILINE)
_HOW_LAUNCHES_LOOK = "a launch contains `vllm serve MODEL …` or `sglang serve MODEL …`"

Beside = Callable[[str], str | None]
"""Fetches the text of a file that lies beside the launch's; None where there is none."""


def _nothing_beside(name: str) -> str | None:
    return None


def parse_words(words: Sequence[str], given: Given = NOTHING) -> Launch:
    """Return the launch that the words of one command are.

    Raises:
        InklingError: no server is named and no engine is given.
    """
    embedded = whole_file(FileText(shlex.join(words), COMMAND_LINE))
    arguments = list(_place_words(words, embedded))
    program = _require_program(arguments, words, given)
    if program is None:
        (launch, *_) = parse_nested(arguments, embedded, given)
        return launch
    place = CommandStart(embedded, 0)
    frame = Frame(
        COMMAND_LINE,
        LaunchForm.COMMAND,
        given.environment,
        given,
        CommandEnd(embedded, len(embedded.text), " " if words else ""),
        place_behind_wrapper(embedded, arguments[: program.start + 1], place, find_image),
    )
    return build_launch(program, arguments, frame)


def _place_words(words: Sequence[str], embedded: Embedded) -> Iterator[Argument]:
    """Yield the words with their places in the one line that they make."""
    position = 0
    for word in words:
        end = position + len(shlex.quote(word))
        yield Argument(word, origin=WordOrigin(embedded, position, end))
        position = end + 1


def _require_program(
    arguments: list[Argument], words: Sequence[str], given: Given
) -> Program | None:
    """Return where the server is named; None where a shell's text names it."""
    program, engine = find_program(arguments), given.engine
    if program is not None:
        return replace(program, engine=engine or program.engine)
    if engine is not None:
        return Program(engine, (engine.value, "serve"), 0, 0)
    if any(parse_nested(arguments, whole_file(FileText("", COMMAND_LINE)), given)):
        return None
    shown = " ".join(words[:3]) + (" …" if len(words) > 3 else "")
    raise InklingError(
        f"`{shown}` starts no server that is known",
        f"{_HOW_LAUNCHES_LOOK}; for bare options say `--engine vllm` or `--engine sglang`",
    )


def parse_launches(
    text: str, name: str, given: Given = NOTHING, beside: Beside = _nothing_beside
) -> tuple[Launch, ...]:
    """Return the launches in a file's text; at least one.

    Raises:
        InklingError: the text is empty, starts no server, or is malformed.
    """
    if not text.strip():
        raise NoLaunchError(f"`{name}` is empty, expected a launch", _HOW_LAUNCHES_LOOK)
    file = FileText(text, name)
    if is_env_file(file):
        return (parse_env_file(file, given),)
    if _is_config(file):
        return _parse_documents(file, given, beside)
    try:
        launches = tuple(parse_script(whole_file(file), given))
    except RecursionError as error:
        raise InklingError(f"`{name}` is nested too deeply") from error
    if launches:
        return launches
    if PurePath(name).suffix not in _SCRIPT_SUFFIXES and not text.startswith("#!"):
        return _parse_documents(file, given, beside)
    raise NoLaunchError(f"`{name}` starts no vLLM or SGLang server", _HOW_LAUNCHES_LOOK)


def _is_config(file: FileText) -> bool:
    """Return whether a file is YAML or JSON, by its name or by how containers are described."""
    if PurePath(file.name).suffix in _CONFIG_SUFFIXES or file.text.lstrip().startswith("{"):
        return True
    is_script = PurePath(file.name).suffix in _SCRIPT_SUFFIXES or file.text.startswith("#!")
    return not is_script and bool(_CONTAINER_KEYS.search(file.text))


def _parse_documents(file: FileText, given: Given, beside: Beside) -> tuple[Launch, ...]:
    """Return the launches of a YAML or JSON file: manifests, a compose file, or options."""
    documents = read_documents(file)
    try:
        if manifests := [document for document in documents if is_kubernetes(document)]:
            found = [parse_kubernetes(file, document, given) for document in manifests]
        elif composed := [document for document in documents if is_compose(document)]:
            given = given.with_environment({**_variables(".env", beside), **given.environment})
            names = env_file_names(composed[0])
            env_files = {path: _variables(path, beside) for path in names}
            found = [parse_compose(file, composed[0], given, env_files)]
        else:
            return (parse_config(file, _only(documents, file), given),)
        launches = tuple(launch for group in found for launch in group)
    except RecursionError as error:
        raise InklingError(f"`{file.name}` is nested too deeply") from error
    if not launches:
        raise NoLaunchError(
            f"`{file.name}` holds no container that starts a vLLM or SGLang server",
            "a container names `vllm serve MODEL …`, `sglang serve MODEL …`, or the image "
            "`vllm/vllm-openai` with its arguments",
        )
    return launches


def _only(documents: Sequence[Document], file: FileText) -> Document:
    if not documents:
        raise NoLaunchError(f"`{file.name}` is empty, expected options and values")
    if len(documents) > 1:
        raise NoLaunchError(
            f"`{file.name}` holds {len(documents)} documents, expected one mapping of options to "
            "values"
        )
    return documents[0]


def _variables(name: str, beside: Beside) -> Mapping[str, Variable]:
    text = beside(name)
    return {} if text is None else parse_variables(FileText(text, name))


def merge_config(launch: Launch, config: Launch) -> Launch:
    """Return the launch with the options of its `--config` file below its own."""
    merged = replace(
        launch,
        uses=(*config.uses, *launch.uses),
        model=launch.model or config.model,
        model_location=launch.model_location if launch.model else config.model_location,
        problems=(*config.problems, *launch.problems),
    )
    return with_adapters(merged)
