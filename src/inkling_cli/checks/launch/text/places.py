"""Where a further option or variable would stand in a launch, and the edit that puts it there.

One small class for each way to write them: words of a shell command, items of a list, entries of a
mapping, lines of an env file. `add` returns None where a place cannot take what is asked.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from inkling_cli.checks.launch.text.origins import format_scalar
from inkling_cli.checks.launch.text.source import Edit, Embedded, FileText
from inkling_cli.checks.launch.text.yaml_edits import format_value, insert_entry, insert_items


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """The end of a shell command."""

    embedded: Embedded
    end: int
    gap: str
    """What stands between its words: a blank, or a new line that continues the command."""

    def add(self, name: str, values: Sequence[str]) -> Edit | None:
        """Return the edit that adds an option and its values."""
        words = " ".join(map(shlex.quote, [name, *values]))
        return self.embedded.edit(self.end, self.end, self.gap + words)


@dataclass(frozen=True, slots=True, eq=False)
class ListEnd:
    """The end of a list of words in a YAML file."""

    file: FileText
    node: yaml.SequenceNode

    def add(self, name: str, values: Sequence[str]) -> Edit | None:
        """Return the edit that adds an option and its values, in the form of the last words."""
        last = self.node.value[-1] if self.node.value else None
        if not isinstance(last, yaml.ScalarNode):
            return None
        words = [name, *values]
        if len(values) == 1 and "=" in last.value and last.value.startswith("--"):
            words = [f"{name}={values[0]}"]
        style = last.style if last.style in (None, "'", '"') else None
        return insert_items(self.file, self.node, [format_scalar(word, style) for word in words])


@dataclass(frozen=True, slots=True, eq=False)
class MappingEnd:
    """The end of a mapping of options to values."""

    file: FileText
    node: yaml.MappingNode
    is_json: bool

    def add_entry(self, key: str, value: str | list[str] | bool) -> Edit | None:
        """Return the edit that adds an option's key and value."""
        return insert_entry(self.file, self.node, key, format_value(value, is_json=self.is_json))


OptionPlace = CommandEnd | ListEnd | MappingEnd


@dataclass(frozen=True, slots=True)
class ScriptStatement:
    """The statement of a script that starts the server: variables are exported ahead of it."""

    embedded: Embedded
    start: int

    def add(self, name: str, value: str) -> Edit | None:
        """Return the edit that exports a variable on a line of its own, or sets it in front."""
        text = self.embedded.text
        line = text.rfind("\n", 0, self.start) + 1
        indent = text[line : self.start]
        assignment = f"{name}={shlex.quote(value)}"
        is_continued = text[:line].endswith("\\\n")
        if indent.strip() or is_continued:
            return self.embedded.edit(self.start, self.start, f"{assignment} ")
        return self.embedded.edit(self.start, self.start, f"export {assignment}\n{indent}")

    def in_front(self) -> "CommandStart":
        """Return the place in front of the command alone: further commands do not see it."""
        return CommandStart(self.embedded, self.start)


@dataclass(frozen=True, slots=True)
class CommandStart:
    """The start of a command: variables are set in front of it."""

    embedded: Embedded
    start: int
    option: str = ""
    """What a wrapper wants before an assignment: `-e ` of `docker run`."""

    def add(self, name: str, value: str) -> Edit | None:
        """Return the edit that sets a variable in front of the command."""
        text = f"{self.option}{name}={shlex.quote(value)} "
        return self.embedded.edit(self.start, self.start, text)


@dataclass(frozen=True, slots=True, eq=False)
class VariableMapping:
    """A mapping of variables to values."""

    file: FileText
    node: yaml.MappingNode

    def add(self, name: str, value: str) -> Edit | None:
        """Return the edit that adds a variable."""
        return insert_entry(self.file, self.node, name, format_scalar(value, '"'))


@dataclass(frozen=True, slots=True, eq=False)
class AssignmentList:
    """A list of `NAME=value`."""

    file: FileText
    node: yaml.SequenceNode

    def add(self, name: str, value: str) -> Edit | None:
        """Return the edit that adds a variable."""
        last = self.node.value[-1] if self.node.value else None
        style = last.style if isinstance(last, yaml.ScalarNode) else None
        return insert_items(self.file, self.node, [format_scalar(f"{name}={value}", style)])


@dataclass(frozen=True, slots=True, eq=False)
class NamedValueList:
    """A list of mappings with `name` and `value`."""

    file: FileText
    node: yaml.SequenceNode

    def add(self, name: str, value: str) -> Edit | None:
        """Return the edit that adds a variable."""
        written = format_scalar(value, '"')
        if self.node.flow_style:
            return insert_items(self.file, self.node, [f'{{"name": "{name}", "value": {written}}}'])
        return insert_items(self.file, self.node, [f"name: {name}\nvalue: {written}"])


@dataclass(frozen=True, slots=True, eq=False)
class NewVariables:
    """A service or container that sets no variables yet."""

    file: FileText
    node: yaml.MappingNode
    key: str
    is_named: bool
    """Whether variables are mappings with `name` and `value`, as in Kubernetes."""

    def add(self, name: str, value: str) -> Edit | None:
        """Return the edit that adds the first variable."""
        written = format_scalar(value, '"')
        if self.node.flow_style:
            entry = f'"name": "{name}", "value": {written}' if self.is_named else ""
            new = f"[{{{entry}}}]" if self.is_named else f'{{"{name}": {written}}}'
        elif self.is_named:
            new = f"\n  - name: {name}\n    value: {written}"
        else:
            new = f"\n  {name}: {written}"
        return insert_entry(self.file, self.node, self.key, new)


@dataclass(frozen=True, slots=True)
class EnvFileEnd:
    """The end of a file of `NAME=value` lines."""

    file: FileText

    def add(self, name: str, value: str) -> Edit | None:
        """Return the edit that adds a line."""
        end = len(self.file.text)
        before = "" if not self.file.text or self.file.text.endswith("\n") else self.file.newline
        return Edit(end, end, f"{before}{name}={value}{self.file.newline}")


VariablePlace = (
    ScriptStatement
    | CommandStart
    | VariableMapping
    | AssignmentList
    | NamedValueList
    | NewVariables
    | EnvFileEnd
)
