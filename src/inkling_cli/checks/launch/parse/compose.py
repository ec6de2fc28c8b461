"""A docker-compose file → the launches of its services.

A `command` that is a text is split into words without a shell. Values are substituted from the
environment of compose and its `.env` file (`given`), not from the service's own variables.
"""

from collections.abc import Iterator, Mapping

import yaml

from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.launch import Launch, LaunchForm, Variable
from inkling_cli.checks.launch.parse.config import scalar_text
from inkling_cli.checks.launch.parse.containers import (
    Container,
    Words,
    iter_launches,
    read_list,
    read_words,
)
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.parse.interpolate import Interpolation
from inkling_cli.checks.launch.text.origins import NodeOrigin
from inkling_cli.checks.launch.text.places import (
    AssignmentList,
    NewVariables,
    VariableMapping,
    VariablePlace,
)
from inkling_cli.checks.launch.text.source import FileText
from inkling_cli.checks.launch.text.yaml_nodes import Document, embed_scalar


def is_compose(document: Document) -> bool:
    """Return whether a document is a compose file: a mapping with a mapping of services."""
    return isinstance(document.child(document.root, "services"), yaml.MappingNode)


def parse_compose(
    file: FileText,
    document: Document,
    given: Given,
    env_files: Mapping[str, Mapping[str, Variable]] | None = None,
) -> Iterator[Launch]:
    """Yield the launches of all services in order.

    Args:
        file: the file.
        document: its content.
        given: what compose inherits, its `.env` file included.
        env_files: the variables in each `env_file` that was found, by the name used.
    """
    for name, key, service in document.entries(document.child(document.root, "services")):
        if isinstance(service, yaml.MappingNode):
            reader = _Service(file, document, given, service, env_files or {})
            container = reader.read(name, key.start_mark.line + 1)
            yield from iter_launches(container, file, given, LaunchForm.COMPOSE)


def env_file_names(document: Document) -> list[str]:
    """Return the env files that the services name."""
    names: list[str] = []
    for _, _, service in document.entries(document.child(document.root, "services")):
        names += _env_files(document, service)
    return list(dict.fromkeys(names))


def _env_files(document: Document, service: yaml.Node) -> list[str]:
    node = document.child(service, "env_file")
    items = node.value if isinstance(node, yaml.SequenceNode) else [node]
    paths = [document.child(i, "path") if isinstance(i, yaml.MappingNode) else i for i in items]
    return [text for path in paths if (text := document.text(path)) is not None]


def _with_bases(document: Document, service: yaml.MappingNode) -> Iterator[yaml.MappingNode]:
    """Yield a service and those of the same file that it extends, the nearest first."""
    services = document.child(document.root, "services")
    seen: list[yaml.Node] = []
    node: yaml.Node | None = service
    while isinstance(node, yaml.MappingNode) and node not in seen:
        seen.append(node)
        yield node
        extended = document.child(node, "extends")
        if document.child(extended, "file") is not None:
            return
        name = document.text(document.child(extended, "service")) or document.text(extended)
        node = None if name is None else document.child(services, name)


class _Service:
    def __init__(
        self,
        file: FileText,
        document: Document,
        given: Given,
        node: yaml.MappingNode,
        env_files: Mapping[str, Mapping[str, Variable]],
    ) -> None:
        self.file = file
        self.document = document
        self.node = node
        self.nodes = list(_with_bases(document, node))
        self.env_files = env_files
        self.interpolation = Interpolation(given.environment)

    def read(self, name: str, line: int) -> Container:
        entrypoint = self._child("entrypoint")
        image = self._child("image")
        variables, place = self._variables()
        return Container(
            name=name,
            line=line,
            image=self._text(image) if isinstance(image, yaml.ScalarNode) else None,
            entrypoint=None if entrypoint is None else self._words(entrypoint),
            command=self._words(self._child("command")),
            variables=variables,
            variable_place=place,
            unknown=tuple(self.interpolation.unknown),
        )

    def _child(self, key: str) -> yaml.Node | None:
        """Return the value of a key, of the service itself or of the nearest that it extends."""
        found = (self.document.child(node, key) for node in self.nodes)
        return next((node for node in found if node is not None), None)

    def _words(self, node: yaml.Node | None) -> Words:
        if isinstance(node, yaml.SequenceNode):
            return read_list(self.file, node, self.interpolation.compose)
        if isinstance(node, yaml.ScalarNode) and self.document.value(node) is not None:
            return read_words(self.interpolation.compose(embed_scalar(self.file, node)))
        return Words()

    def _text(self, node: yaml.ScalarNode) -> str:
        return self.interpolation.compose(embed_scalar(self.file, node)).text

    def _variables(self) -> tuple[dict[str, Variable], VariablePlace]:
        found: dict[str, Variable] = {}
        for node in reversed(self.nodes):
            for name in _env_files(self.document, node):
                found |= self.env_files.get(name, {})
        for node in reversed(self.nodes[1:]):
            found |= self._set_by(node)[0]
        own, place = self._set_by(self.node)
        return found | own, place

    def _set_by(self, service: yaml.MappingNode) -> tuple[dict[str, Variable], VariablePlace]:
        """Return the variables under `environment` of a service, and where one is added."""
        found: dict[str, Variable] = {}
        node = self.document.child(service, "environment")
        if isinstance(node, yaml.MappingNode) and node.value:
            for name, _, value in self.document.entries(node):
                found |= self._variable(name, value, value, "")
            return found, VariableMapping(self.file, node)
        if isinstance(node, yaml.SequenceNode) and node.value:
            for item in node.value:
                name, equals, _ = (self.document.text(item) or "").partition("=")
                found |= self._variable(name, item, item if equals else None, f"{name}=")
            return found, AssignmentList(self.file, node)
        return found, NewVariables(self.file, service, "environment", is_named=False)

    def _variable(
        self, name: str, node: yaml.Node, value: yaml.Node | None, prefix: str
    ) -> dict[str, Variable]:
        """Return a variable with its value; one without a value is taken from compose's own."""
        if not isinstance(value, yaml.ScalarNode) or self.document.value(value) is None:
            inherited = self.interpolation.variables.get(name)
            return {name: inherited} if inherited else {}
        text = self._text(value).removeprefix(prefix)
        if value.style is None and not prefix and text == value.value:
            text = scalar_text(self.document.value(value))
        place = Location(self.file.name, node.start_mark.line + 1, name)
        return {name: Variable(name, text, place, origin=NodeOrigin(self.file, value, prefix))}
