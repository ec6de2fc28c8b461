"""A YAML or JSON file of option names and values → a `Launch`.

Keys are option names with dashes or underscores; `env:` maps variables. JSON is read by the YAML
reader, which tells lines. The trap: the engines' own `--config` turns such a file into
command-line words, each in its own way, so what is legal on a command line may be refused here.
A file with `env:`, or in JSON, is no engine's own format; it is read as plain notes of a launch.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.launch import Launch, LaunchForm, Problem, ProblemKind, Variable
from inkling_cli.checks.launch.options import Arity, OptionTable, option_table
from inkling_cli.checks.launch.parse_arguments import Argument
from inkling_cli.checks.launch.parse_command import Program, build_launch
from inkling_runtime.errors import InklingError

_MAX_VALUES = 10_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of the file."""

    key: str
    value: Any
    line: int

    @property
    def option(self) -> str:
        """The key as an option, spelled as in the file."""
        return "--" + self.key.removeprefix("--")


def parse_config(
    text: str, file: str, environment: Mapping[str, Variable], engine: Engine | None = None
) -> Launch:
    """Return the launch that a config file describes.

    Args:
        text: the file's content.
        file: its name, for locations.
        environment: the variables that the server inherits.
        engine: overrides what the keys say.

    Raises:
        InklingError: not YAML, not a mapping, empty, or its engine cannot be told.
    """
    entries = list(_iter_entries(text, file))
    if not entries:
        raise InklingError(f"`{file}` is empty, expected options and values")
    options = [entry for entry in entries if entry.key != "env"]
    is_engine_config = len(options) == len(entries) and not text.lstrip().startswith("{")
    engine = engine or recognise_engine([entry.option for entry in options], file)
    reader = _Reader(engine, option_table(engine), file, is_engine_config)
    words = [word for entry in options for word in reader.words(entry)]
    variables = dict(environment)
    for entry in entries:
        if entry.key == "env":
            variables |= _variables(entry, file)
    program = Program(engine, (engine.value, "serve"), 0, 0)
    launch = build_launch(program, words, variables, file, LaunchForm.CONFIG)
    return replace(
        launch,
        location=Location(file, 1),
        problems=(*launch.problems, *reader.problems),
        is_engine_config=is_engine_config,
    )


def recognise_engine(options: list[str], file: str) -> Engine:
    """Return the engine that knows more of these options.

    Raises:
        InklingError: both know as many.
    """
    known = {
        engine: sum(
            option_table(engine).match(o.replace("_", "-")).spec is not None for o in options
        )
        for engine in Engine
    }
    if known[Engine.VLLM] == known[Engine.SGLANG]:
        raise InklingError(
            f"`{file}` does not tell which engine it is for: both know {known[Engine.VLLM]} of "
            f"its {len(options)} options",
            "say which with `--engine vllm` or `--engine sglang`",
        )
    return max(known, key=lambda engine: known[engine])


@dataclass
class _Reader:
    """Turns entries into the words that the engine's `--config` turns them into."""

    engine: Engine
    table: OptionTable
    file: str
    is_engine_config: bool

    def __post_init__(self) -> None:
        self.problems: list[Problem] = []

    def words(self, entry: Entry) -> Iterator[Argument]:
        option, value = entry.option, entry.value
        if not self.is_engine_config:
            option = option if self.table.underscores else option.replace("_", "-")
            if value is None:
                return
        self._require_readable(option, entry)
        if isinstance(value, bool):
            texts = self._switch(option, value)
        elif isinstance(value, list):
            texts = [option, *(self._text(item) for item in value)] if value else []
        elif isinstance(value, dict):
            texts = [option, json.dumps(value)]
        else:
            texts = [option, str(value)]
        yield from (Argument(text, entry.line) for text in texts)

    def _text(self, item: Any) -> str:
        """Return a list's item; the engines write a mapping as Python, which is not JSON."""
        if isinstance(item, dict) and not self.is_engine_config:
            return json.dumps(item)
        return str(item)

    def _switch(self, option: str, value: bool) -> list[str]:
        spec = self.table.match(option).spec
        if spec is not None and spec.arity is not Arity.NONE:
            return [option, str(value).lower()]
        if value:
            return [option]
        return [spec.negations[-1]] if spec is not None and spec.negations else []

    def _require_readable(self, option: str, entry: Entry) -> None:
        """SGLang's reader knows no way to write its pairs of switches and its adapter list."""
        spec = self.table.match(option.replace("_", "-")).spec
        if self.engine is not Engine.SGLANG or not self.is_engine_config or spec is None:
            return
        if spec.negations or spec.name == self.engine.adapters_option:
            place = Location(self.file, entry.line, entry.key)
            self.problems.append(
                Problem(ProblemKind.UNREADABLE_IN_CONFIG, entry.key, place, (spec.name,))
            )


def _variables(entry: Entry, file: str) -> dict[str, Variable]:
    if not isinstance(entry.value, dict):
        raise InklingError(f"`env` in `{file}:{entry.line}` is not a mapping of names to values")
    return {
        str(name): Variable(str(name), _scalar(value), Location(file, entry.line, str(name)))
        for name, value in entry.value.items()
    }


def _scalar(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _iter_entries(text: str, file: str) -> Iterator[Entry]:
    """Yield the keys of the file's top mapping with their lines."""
    try:
        yield from _compose_entries(yaml.SafeLoader(text), file)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        raise InklingError(f"`{file}` is not readable as YAML: {_reason(error)}") from error
    except RecursionError as error:
        raise InklingError(f"`{file}` is nested too deeply") from error


def _compose_entries(loader: yaml.SafeLoader, file: str) -> Iterator[Entry]:
    root = loader.get_single_node()
    if root is None:
        return
    if not isinstance(root, yaml.MappingNode):
        raise InklingError(
            f"`{file}` holds {_kind_of(root)}, expected a mapping of options to values"
        )
    _count_values(root, {}, file)
    loader.flatten_mapping(root)
    for key, value in root.value:
        name, line = str(loader.construct_object(key, deep=True)), key.start_mark.line + 1
        if not re.fullmatch(r"[\w.-]+", name):
            raise InklingError(f"`{file}:{line}` has the key `{name}`, which is no option's name")
        yield Entry(name, loader.construct_object(value, deep=True), line)


def _count_values(node: yaml.Node, counts: dict[yaml.Node, int], file: str) -> int:
    """Count the values that a node stands for, aliases written out; refuse what has no bound."""
    if node not in counts:
        counts[node] = _MAX_VALUES + 1  # what a node that contains itself finds
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        flat = (n for child in children for n in (child if isinstance(child, tuple) else (child,)))
        counts[node] = 1 + sum(_count_values(child, counts, file) for child in flat)
    if counts[node] > _MAX_VALUES:
        raise InklingError(f"`{file}` stands for more than {_MAX_VALUES} values")
    return counts[node]


def _kind_of(node: yaml.Node) -> str:
    return "a list" if isinstance(node, yaml.SequenceNode) else "a single value"


def _reason(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f" in line {mark.line + 1}" if mark else ""
    return f"{getattr(error, 'problem', None) or error}{where}"
