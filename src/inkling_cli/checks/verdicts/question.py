"""What `inkling check-adapter` is asked, and the launches that it is asked about."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain, count
from pathlib import Path

from inkling_cli.checks.adapter import Consumer
from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.launch import COMMAND_LINE, AdapterRef, Launch, OptionUse
from inkling_cli.checks.launch.parse.given import NOTHING, Given
from inkling_cli.checks.launch.parse.launches import parse_words
from inkling_cli.checks.launch.read import (
    LaunchSource,
    launches_of,
    read_environment,
    read_source,
)
from inkling_cli.checks.launch.serving import adapter_entry, serving_words
from inkling_runtime.adapter.model_spec import ModelSpec, read_model_spec
from inkling_runtime.errors import InklingError, format_names

NO_MODEL = "MODEL"
"""Stands in commands for the model that nobody named."""


class Load(StrEnum):
    """When an engine gets an adapter: from its command line, or while it runs."""

    STARTUP = "startup"
    DYNAMIC = "dynamic"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked beside the adapters.

    Attributes:
        consumers: who is to apply them.
        version: of the one engine that is asked about; None for the known one.
        model: a folder or a config.json; None where the launch names one, or nobody does.
        spec: its sizes; None where they are not known.
        launch: the user's launch, to which the adapter is added; None for the best one.
        load: when the engine gets the adapter.
        given: what is said beside the launch.
    """

    consumers: tuple[Consumer, ...]
    version: str | None = None
    model: Path | None = None
    spec: ModelSpec | None = None
    launch: Launch | None = None
    load: Load = Load.STARTUP
    given: Given = field(default=NOTHING)

    @property
    def model_name(self) -> str:
        """The model as a word of a command."""
        return NO_MODEL if self.model is None else str(self.model)


def read_launch(
    words: Sequence[str], file: Path | None, engine: Engine | None, model: str, given: Given
) -> Launch | None:
    """Return the launch that the user gives, as words or in a file; None without one.

    Words that begin with an option are those of the engine's own command line, in which the
    program, the model and `--enable-lora` go without saying.

    Raises:
        InklingError: both are given, the file holds several launches, or no engine is named.
    """
    if words and file is not None:
        raise InklingError("a launch is given by `--launch` and after `--`, expected one of them")
    if file is not None:
        return _launch_in(file, engine, given)
    if not words:
        return None
    if not words[0].startswith("-"):
        return _only_launch(LaunchSource(COMMAND_LINE, shlex.join(words)), given)
    if engine is None:
        raise InklingError(
            "options of an engine are given after `--`, but not of which one",
            "say either `--engine vllm` or `--engine sglang`",
        )
    launch = parse_words(serving_words(engine, model, words), given)
    if launch.use("--enable-lora") is not None:
        return launch
    return parse_words(serving_words(engine, model, ["--enable-lora", *words]), given)


def _launch_in(file: Path, engine: Engine | None, given: Given) -> Launch:
    """Return the launch in a file; the engine is asked only where the file does not tell it."""
    if str(file) != "-" and not file.exists():
        raise InklingError(
            f"`{file}` does not exist, expected a launch",
            "options of an engine or its command go after `--`",
        )
    source = read_source([str(file)])
    try:
        return _only_launch(source, given)
    except InklingError:
        if engine is None:
            raise
        return _only_launch(source, replace(given, engine=engine))


def _only_launch(source: LaunchSource, given: Given) -> Launch:
    launches = launches_of(source, given)
    if len(launches) > 1:
        raise InklingError(
            f"`{source.name}` holds {len(launches)} launches, expected one",
            "pass the command of one of them after `--`",
        )
    return launches[0]


def with_adapter(
    launch: Launch, folder: Path, load: Load, *, is_packed: bool = False
) -> tuple[Launch, AdapterRef]:
    """Return a launch that gets the adapter in a folder, and what it calls it.

    An adapter of the launch that lies in this folder is the one that is meant; otherwise it is
    added to those of the launch.
    """
    for ref in launch.adapters:
        if Path(ref.path).expanduser().absolute() == folder.absolute():
            return launch, ref
    name = _free_name(folder.absolute().name or "adapter", launch)
    option = launch.engine.adapters_option
    place = Location(COMMAND_LINE, key=option)
    at_startup = load is Load.STARTUP
    ref = AdapterRef(name, str(folder), place, at_startup=at_startup, source=str(folder))
    launch = replace(launch, adapters=(*launch.adapters, ref))
    if not at_startup:
        return launch, ref
    entry = adapter_entry(launch.engine, name, str(folder), is_packed=is_packed)
    use = OptionUse(option, (*launch.values(option), entry), option, place)
    return replace(launch, uses=(*launch.uses, use)), ref


def _free_name(name: str, launch: Launch) -> str:
    taken = {ref.name for ref in launch.adapters}
    names = chain([name], (f"{name}-{i}" for i in count(2)))
    return next(free for free in names if free not in taken)


def make_question(
    *,
    consumers: Sequence[Consumer],
    version: str | None,
    model: Path | None,
    words: Sequence[str],
    file: Path | None,
    load: Load,
    env: Sequence[str] = (),
    env_files: Sequence[str] = (),
    inherited: Mapping[str, str] | None = None,
) -> Question:
    """Return what the options of the command ask.

    Without consumers all are asked, or the engine of the launch where one is given.

    Raises:
        InklingError: the options contradict each other, or a file is not there.
    """
    given = Given(read_environment(inherited or {}, env, env_files))
    consumers = tuple(dict.fromkeys(consumers))
    asked = [Engine(c.value) for c in consumers if c in (Consumer.VLLM, Consumer.SGLANG)]
    if version == "":
        raise InklingError("`--engine-version` is an empty text, expected a version")
    name = NO_MODEL if model is None else str(model)
    launch = read_launch(words, file, asked[0] if len(asked) == 1 else None, name, given)
    if launch is not None:
        of_launch = Consumer(launch.engine.value)
        consumers = consumers or (of_launch,)
        if of_launch not in consumers or len(asked) > 1:
            raise InklingError(
                f"the launch starts {launch.engine.display_name}, "
                f"but `--engine` asks for {format_names([c.value for c in consumers])}",
                f"say `--engine {of_launch.value}`",
            )
    consumers = tuple(consumers or Consumer)
    if version is not None and len(consumers) != 1:
        raise InklingError(
            f"`--engine-version {version}` is given for {len(consumers)} engines, expected one",
            "say whose version it is with `--engine`",
        )
    if version is not None and consumers == (Consumer.NATIVE,):
        raise InklingError(
            f"`--engine-version {version}` is given for `native`, which is this very tool",
            "leave it out",
        )
    path = model if model is not None else _local_model(launch)
    spec = None if path is None else read_model_spec(path)
    return Question(consumers, version, model, spec, launch, load, given)


def _local_model(launch: Launch | None) -> Path | None:
    """Return the model of a launch, if its config lies on this machine."""
    if launch is None or launch.model is None:
        return None
    path = Path(launch.model)
    return path if (path / "config.json").is_file() or path.name == "config.json" else None
