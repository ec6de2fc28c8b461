"""A command's words → a `Launch`: which engine, which model, which options, which adapters.

The server's program is searched for anywhere in the words, so wrappers (`exec`, `nohup`,
`numactl …`, `docker run -e K=V …`) need no knowledge of their own here.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.launch import (
    Argument,
    Launch,
    LaunchForm,
    Problem,
    ProblemKind,
    Variable,
)
from inkling_cli.checks.launch.parse.adapter_refs import parse_adapters
from inkling_cli.checks.launch.parse.arguments import Arguments, is_unknown, parse_arguments
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.parse.wrappers import variables_behind
from inkling_cli.checks.launch.text.places import OptionPlace, VariablePlace

_COMMANDS = {
    "vllm": Engine.VLLM,
    "vllm.entrypoints.cli.main": Engine.VLLM,
    "sglang": Engine.SGLANG,
    "sglang.cli.main": Engine.SGLANG,
}
"""Programs (and modules) that start a server by their `serve` command."""
_MODULES = {
    "vllm.entrypoints.openai.api_server": Engine.VLLM,
    "sglang.launch_server": Engine.SGLANG,
}
"""Modules that are a server."""
_IMAGE = re.compile(r"(?:[\w.-]+/)*(vllm-openai|sglang)(?::v?([\w.+-]+))?(?:@.*)?")


@dataclass(frozen=True, slots=True)
class Program:
    """Where in a command the server is named, and the index of its first argument."""

    engine: Engine
    words: tuple[str, ...]
    start: int
    first_argument: int
    image_version: str | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """What surrounds a command: its file, its form, its variables, where it can be added to."""

    file: str
    form: LaunchForm
    variables: Mapping[str, Variable]
    given: Given
    option_place: OptionPlace | None = None
    variable_place: VariablePlace | None = None
    container: str | None = None


def find_program(words: Sequence[Argument]) -> Program | None:
    """Return the server that a command starts, or None."""
    texts = [word.text for word in words]
    version = None
    for i, text in enumerate(texts):
        name, following = text.rpartition("/")[2], texts[i + 1 : i + 2]
        if name in _COMMANDS and following == ["serve"]:
            return Program(_COMMANDS[name], (name, "serve"), i, i + 2, version)
        if text == "-m" and following and following[0] in _MODULES:
            return Program(
                _MODULES[following[0]], ("python", text, following[0]), i, i + 2, version
            )
        if found := find_image(text):
            image, version = found
            if image is Engine.VLLM and find_program(words[i + 1 :]) is None:
                return Program(Engine.VLLM, (text,), i, i + 1, version)
    return None


def find_image(text: str) -> tuple[Engine, str | None] | None:
    """Return the engine of a container image and the version in its tag, or None."""
    found = _IMAGE.fullmatch(text)
    if found is None:
        return None
    engine = Engine.VLLM if found[1] == "vllm-openai" else Engine.SGLANG
    return engine, found[2]


def build_launch(program: Program, words: Sequence[Argument], frame: Frame) -> Launch:
    """Return the launch of a command whose server was found."""
    file = frame.file
    arguments = parse_arguments(
        words[program.first_argument :],
        program.engine,
        frame.given.version or program.image_version,
        file,
        is_config=frame.form is LaunchForm.CONFIG,
    )
    line = words[program.start].line if program.start < len(words) else None
    launch = Launch(
        engine=program.engine,
        form=frame.form,
        program=program.words,
        model=None,
        model_location=Location(file, line, "model"),
        uses=tuple(arguments.uses),
        variables=variables_behind(
            words[: program.start], frame.variables, frame.given, frame.file
        ),
        adapters=(),
        problems=tuple(arguments.problems),
        location=Location(file, line),
        image_version=program.image_version,
        option_place=frame.option_place,
        variable_place=frame.variable_place,
        container=frame.container,
    )
    first = words[program.first_argument : program.first_argument + 1]
    return with_adapters(_with_model(launch, arguments, first))


def _with_model(launch: Launch, arguments: Arguments, first: Sequence[Argument]) -> Launch:
    """Take the model from its option or from the positionals; the rest of those is stray."""
    strays = list(arguments.positionals)
    option = launch.use(launch.engine.model_option)
    model = option.values[0] if option and option.values else None
    place = option.location if option else launch.model_location
    is_vllm = launch.engine is Engine.VLLM
    takes_positional = option is None if is_vllm else launch.program[-1] == "serve"
    problems = []
    if strays and takes_positional and (is_vllm or strays[0] in first):
        word = strays.pop(0)
        model, place = word.text, Location(launch.location.file, word.line, "model")
        if is_vllm and word not in first and launch.use("--served-model-name"):
            problems.append(Problem(ProblemKind.MODEL_NOT_FIRST, word.text, place))
    problems += [
        Problem(ProblemKind.STRAY_ARGUMENT, word.text, Location(launch.location.file, word.line))
        for word in strays
        if not is_unknown(word.text)
    ]
    return replace(
        launch,
        model=model,
        model_location=place,
        problems=(*launch.problems, *problems),
    )


def with_adapters(launch: Launch) -> Launch:
    """Return the launch with its start-up adapters read anew from its options."""
    others = (p for p in launch.problems if p.kind is not ProblemKind.MALFORMED_ADAPTER)
    use = launch.use(launch.engine.adapters_option)
    adapters, problems = parse_adapters(use, launch.engine)
    return replace(launch, adapters=adapters, problems=(*others, *problems))
