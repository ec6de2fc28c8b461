"""A YAML or JSON file of option names and values → a `Launch`.

Keys are option names with dashes or underscores; `env:` maps variables. JSON is read by the YAML
reader, which tells lines. The trap: the engines' own `--config` turns such a file into
command-line words, each in its own way, so what is legal on a command line may be refused here.
A file with `env:`, or in JSON, is no engine's own format; it is read as plain notes of a launch.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import yaml

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
from inkling_cli.checks.launch.options.table import Arity, OptionTable, option_table
from inkling_cli.checks.launch.parse.command import Frame, Program, build_launch
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.parse.no_launch import NoLaunchError
from inkling_cli.checks.launch.text.origins import NodeOrigin
from inkling_cli.checks.launch.text.places import (
    MappingEnd,
    NewVariables,
    VariableMapping,
    VariablePlace,
)
from inkling_cli.checks.launch.text.source import FileText
from inkling_cli.checks.launch.text.yaml_nodes import Document, kind_of
from inkling_runtime.errors import InklingError


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of the file."""

    key: str
    value: Any
    line: int
    node: yaml.Node

    @property
    def option(self) -> str:
        """The key as an option, spelled as in the file."""
        return "--" + self.key.removeprefix("--")


def parse_config(file: FileText, document: Document, given: Given) -> Launch:
    """Return the launch that a config file describes.

    Args:
        file: the file.
        document: its content.
        given: the variables that the server inherits, and the engine, if the user says it.

    Raises:
        InklingError: not a mapping of options, empty, or its engine cannot be told.
    """
    entries = list(_iter_entries(file, document))
    if not entries:
        raise NoLaunchError(f"`{file.name}` is empty, expected options and values")
    options = [entry for entry in entries if entry.key != "env"]
    is_json = file.text.lstrip().startswith("{")
    is_engine_config = len(options) == len(entries) and not is_json
    engine = given.engine or recognise_engine([entry.option for entry in options], file.name)
    table = option_table(engine, given.version)
    reader = _Reader(engine, table, file.name, is_engine_config)
    words = [word for entry in options for word in reader.words(entry)]
    variables = dict(given.environment)
    for entry in entries:
        if entry.key == "env":
            variables |= _variables(entry, file, document)
    assert isinstance(document.root, yaml.MappingNode)
    frame = Frame(
        file.name,
        LaunchForm.CONFIG,
        variables,
        given,
        MappingEnd(file, document.root, is_json),
        None if is_engine_config else _variable_place(entries, file, document.root),
    )
    launch = build_launch(Program(engine, (engine.value, "serve"), 0, 0), words, frame)
    return replace(
        launch,
        location=Location(file.name, 1),
        problems=(*launch.problems, *reader.problems),
        is_engine_config=is_engine_config,
    )


def _variable_place(
    entries: list[Entry], file: FileText, root: yaml.MappingNode
) -> VariablePlace | None:
    nodes = [entry.node for entry in entries if entry.key == "env"]
    if not nodes:
        return NewVariables(file, root, "env", is_named=False)
    return VariableMapping(file, nodes[0]) if isinstance(nodes[0], yaml.MappingNode) else None


def recognise_engine(options: list[str], file: str) -> Engine:
    """Return the engine that knows more of these options, and at least half of them.

    Raises:
        NoLaunchError: both know as many, or too few for a file of options.
    """
    known = {
        engine: sum(
            option_table(engine).match(o.replace("_", "-")).spec is not None for o in options
        )
        for engine in Engine
    }
    if known[Engine.VLLM] == known[Engine.SGLANG]:
        raise NoLaunchError(
            f"`{file}` does not tell which engine it is for: both know {known[Engine.VLLM]} of "
            f"its {len(options)} options",
            "say which with `--engine vllm` or `--engine sglang`",
        )
    engine = max(known, key=lambda engine: known[engine])
    if 2 * known[engine] < len(options):
        raise NoLaunchError(
            f"`{file}` does not look like a launch: {engine.display_name} knows {known[engine]} of "
            f"its {len(options)} keys",
            f"if it is one, say so with `--engine {engine.value}`",
        )
    return engine


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


def _variables(entry: Entry, file: FileText, document: Document) -> dict[str, Variable]:
    if not isinstance(entry.node, yaml.MappingNode):
        raise InklingError(
            f"`env` in `{file.name}:{entry.line}` is not a mapping of names to values"
        )
    return {
        name: variable_of(name, value, file, document)
        for name, _, value in document.entries(entry.node)
    }


def variable_of(name: str, node: yaml.Node, file: FileText, document: Document) -> Variable:
    """Return the variable that an entry of a mapping sets."""
    place = Location(file.name, node.start_mark.line + 1, name)
    origin = NodeOrigin(file, node) if isinstance(node, yaml.ScalarNode) else None
    return Variable(name, scalar_text(document.value(node)), place, origin=origin)


def scalar_text(value: Any) -> str:
    """Return a value as the text that a server sees of it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _iter_entries(file: FileText, document: Document) -> Iterator[Entry]:
    """Yield the keys of the file's top mapping with their lines."""
    root = document.root
    if not isinstance(root, yaml.MappingNode):
        raise NoLaunchError(
            f"`{file.name}` holds {kind_of(root)}, expected a mapping of options to values"
        )
    for name, key, value in document.entries(root):
        line = key.start_mark.line + 1
        if not re.fullmatch(r"[\w.-]+", name):
            raise NoLaunchError(
                f"`{file.name}:{line}` has the key `{name}`, which is no option's name"
            )
        yield Entry(name, document.value(value), line, value)
