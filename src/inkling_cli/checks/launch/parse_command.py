"""A command's words → a `Launch`: which engine, which model, which options, which adapters.

The server's program is searched for anywhere in the words, so wrappers (`exec`, `nohup`,
`numactl …`, `docker run -e K=V …`) need no knowledge of their own; `K=V` words before it set
variables.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.adapter_refs import parse_adapters
from inkling_cli.checks.launch.launch import (
    Launch,
    LaunchForm,
    Problem,
    ProblemKind,
    Variable,
)
from inkling_cli.checks.launch.parse_arguments import (
    Argument,
    Arguments,
    is_unknown,
    parse_arguments,
)

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
_IMAGE = re.compile(r"(?:[\w.-]+/)*vllm-openai(?::v?([\w.+-]+))?(?:@.*)?")
_ASSIGNMENT = re.compile(r"(?:--env=|-e)?([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Program:
    """Where in a command the server is named, and the index of its first argument."""

    engine: Engine
    words: tuple[str, ...]
    start: int
    first_argument: int
    image_version: str | None = None


def find_program(words: Sequence[Argument]) -> Program | None:
    """Return the server that a command starts, or None."""
    texts = [word.text for word in words]
    for i, text in enumerate(texts):
        name, following = text.rpartition("/")[2], texts[i + 1 : i + 2]
        if name in _COMMANDS and following == ["serve"]:
            return Program(_COMMANDS[name], (name, "serve"), i, i + 2)
        if text == "-m" and following and following[0] in _MODULES:
            return Program(_MODULES[following[0]], ("python", text, following[0]), i, i + 2)
        if found := _IMAGE.fullmatch(text):
            return Program(Engine.VLLM, (text,), i, i + 1, found[1])
    return None


def assignments_before(words: Sequence[Argument], file: str) -> dict[str, Variable]:
    """Return the variables that `K=V` words (also `-e K=V`, `--env=K=V`) set."""
    found = {}
    for word in words:
        if match := _ASSIGNMENT.fullmatch(word.text):
            place = Location(file, word.line, match[1])
            found[match[1]] = Variable(match[1], match[2], place)
    return found


def build_launch(
    program: Program,
    words: Sequence[Argument],
    variables: Mapping[str, Variable],
    file: str,
    form: LaunchForm,
) -> Launch:
    """Return the launch of a command whose server was found."""
    is_config = form is LaunchForm.CONFIG
    arguments = parse_arguments(
        words[program.first_argument :], program.engine, file, is_config=is_config
    )
    line = words[program.start].line if program.start < len(words) else None
    variables = {**variables, **assignments_before(words[: program.start], file)}
    launch = Launch(
        engine=program.engine,
        form=form,
        program=program.words,
        model=None,
        model_location=Location(file, line, "model"),
        uses=tuple(arguments.uses),
        variables=variables,
        adapters=(),
        problems=tuple(arguments.problems),
        location=Location(file, line),
        image_version=program.image_version,
    )
    first = words[program.first_argument : program.first_argument + 1]
    return with_adapters(_with_model(launch, arguments, first))


def _with_model(launch: Launch, arguments: Arguments, first: Sequence[Argument]) -> Launch:
    """Take the model from its option or from the positionals; the rest of those is stray."""
    strays = list(arguments.positionals)
    option = launch.use(launch.engine.model_option)
    model = option.values[0] if option and option.values else None
    place = option.location if option else launch.model_location
    takes_positional = launch.engine is Engine.VLLM or launch.program[-1] == "serve"
    may_be_anywhere = launch.engine is Engine.VLLM
    if strays and takes_positional and (may_be_anywhere or strays[0] in first):
        word = strays.pop(0)
        model, place = word.text, Location(launch.location.file, word.line, "model")
    problems = [
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
