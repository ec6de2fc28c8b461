"""A Kubernetes manifest → the launches of its containers, wherever in it they stand.

`command` is the entrypoint, `args` its arguments. Values that come from elsewhere (`valueFrom`,
`envFrom`) are not known here.
"""

from collections.abc import Iterator

import yaml

from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.launch import Launch, LaunchForm, Variable
from inkling_cli.checks.launch.parse.containers import (
    Container,
    Words,
    iter_launches,
    read_list,
)
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.parse.interpolate import Interpolation
from inkling_cli.checks.launch.text.origins import NodeOrigin
from inkling_cli.checks.launch.text.places import NamedValueList, NewVariables, VariablePlace
from inkling_cli.checks.launch.text.source import FileText
from inkling_cli.checks.launch.text.yaml_nodes import Document, embed_scalar


def is_kubernetes(document: Document) -> bool:
    """Return whether a document is a manifest: it has `apiVersion` and `kind`."""
    keys = {name for name, _, _ in document.entries(document.root)}
    return {"apiVersion", "kind"} <= keys


def parse_kubernetes(file: FileText, document: Document, given: Given) -> Iterator[Launch]:
    """Yield the launches of all containers in order."""
    for node in _iter_containers(document, document.root):
        container = _read_container(file, document, node, given)
        yield from iter_launches(container, file, given, LaunchForm.KUBERNETES)


def _iter_containers(document: Document, node: yaml.Node) -> Iterator[yaml.MappingNode]:
    """Yield every mapping in a list under a key `containers`, at any depth."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _iter_containers(document, item)
    for name, _, value in document.entries(node):
        if name == "containers" and isinstance(value, yaml.SequenceNode):
            yield from (item for item in value.value if isinstance(item, yaml.MappingNode))
        else:
            yield from _iter_containers(document, value)


def _read_container(
    file: FileText, document: Document, node: yaml.MappingNode, given: Given
) -> Container:
    variables, place = _variables(file, document, node, given)
    interpolation = Interpolation(variables)

    def words(key: str) -> Words:
        found = document.child(node, key)
        if isinstance(found, yaml.SequenceNode):
            return read_list(file, found, interpolation.kubernetes)
        return Words()

    has_command = document.child(node, "command") is not None
    return Container(
        name=document.text(document.child(node, "name")) or "container",
        line=node.start_mark.line + 1,
        image=document.text(document.child(node, "image")),
        entrypoint=words("command") if has_command else None,
        command=words("args"),
        variables=variables,
        variable_place=place,
        unknown=tuple(interpolation.unknown),
    )


def _variables(
    file: FileText, document: Document, node: yaml.MappingNode, given: Given
) -> tuple[dict[str, Variable], VariablePlace]:
    found = dict(given.environment)
    entries = document.child(node, "env")
    if not isinstance(entries, yaml.SequenceNode) or not entries.value:
        return found, NewVariables(file, node, "env", is_named=True)
    interpolation = Interpolation(found)
    for entry in entries.value:
        name = document.text(document.child(entry, "name"))
        value = document.child(entry, "value")
        if name is None or not isinstance(value, yaml.ScalarNode):
            continue
        text = interpolation.kubernetes(embed_scalar(file, value)).text
        place = Location(file.name, value.start_mark.line + 1, name)
        found[name] = Variable(name, text, place, origin=NodeOrigin(file, value))
    return found, NamedValueList(file, entries)
