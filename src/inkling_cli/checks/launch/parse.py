"""Text of any supported kind → launches. No I/O: `read.py` fetches the text.

Kinds: a shell script, a YAML or JSON file of options, or the words of one command.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.launch.launch import COMMAND_LINE, Launch, LaunchForm, Variable
from inkling_cli.checks.launch.parse_arguments import Argument
from inkling_cli.checks.launch.parse_command import (
    Program,
    build_launch,
    find_program,
    with_adapters,
)
from inkling_cli.checks.launch.parse_config import parse_config
from inkling_cli.checks.launch.parse_script import parse_script
from inkling_runtime.errors import InklingError

_CONFIG_SUFFIXES = (".yaml", ".yml", ".json")
_SCRIPT_SUFFIXES = (".sh", ".bash", ".zsh")
_HOW_LAUNCHES_LOOK = "a launch contains `vllm serve MODEL …` or `sglang serve MODEL …`"


def parse_words(
    words: Sequence[str], environment: Mapping[str, Variable], engine: Engine | None = None
) -> Launch:
    """Return the launch that the words of one command are.

    Raises:
        InklingError: no server is named and no engine is given.
    """
    arguments = [Argument(word) for word in words]
    program = find_program(arguments)
    if program is None and engine is None:
        shown = " ".join(words[:3]) + (" …" if len(words) > 3 else "")
        raise InklingError(
            f"`{shown}` starts no server that is known",
            f"{_HOW_LAUNCHES_LOOK}; for bare options say `--engine vllm` or `--engine sglang`",
        )
    if program is None or (engine and engine is not program.engine):
        assert engine is not None
        first = program.first_argument if program else 0
        start = program.start if program else 0
        program = Program(engine, (engine.value, "serve"), start, first)
    return build_launch(program, arguments, environment, COMMAND_LINE, LaunchForm.COMMAND)


def parse_launches(
    text: str, file: str, environment: Mapping[str, Variable], engine: Engine | None = None
) -> tuple[Launch, ...]:
    """Return the launches in a file's text; at least one.

    Raises:
        InklingError: the text is empty, starts no server, or is malformed.
    """
    if not text.strip():
        raise InklingError(f"`{file}` is empty, expected a launch", _HOW_LAUNCHES_LOOK)
    if _is_config(text, file):
        return (parse_config(text, file, environment, engine),)
    try:
        launches = tuple(parse_script(text, file, environment, engine))
    except RecursionError as error:
        raise InklingError(f"`{file}` is nested too deeply") from error
    if launches:
        return launches
    if PurePath(file).suffix not in _SCRIPT_SUFFIXES and not text.startswith("#!"):
        return (parse_config(text, file, environment, engine),)
    raise InklingError(f"`{file}` starts no vLLM or SGLang server", _HOW_LAUNCHES_LOOK)


def _is_config(text: str, file: str) -> bool:
    return PurePath(file).suffix in _CONFIG_SUFFIXES or text.lstrip().startswith("{")


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
