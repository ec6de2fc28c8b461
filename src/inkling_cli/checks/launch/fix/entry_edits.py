"""A change of a launch that is a mapping of options to values → edits of its entries."""

import re

import yaml

from inkling_cli.checks.finding import Change
from inkling_cli.checks.launch.options.table import Arity, OptionSpec, OptionTable
from inkling_cli.checks.launch.text.origins import format_scalar
from inkling_cli.checks.launch.text.places import MappingEnd
from inkling_cli.checks.launch.text.source import Edit
from inkling_cli.checks.launch.text.yaml_edits import end_of, format_value, remove_entry


def plan_entries(place: MappingEnd, change: Change, table: OptionTable) -> list[Edit] | None:
    """Return the edits of a mapping that change, add, remove and respell entries."""
    edits: list[Edit | None] = []
    for name, value in change.options.items():
        edits.append(_set(place, table, table.spec(name), value))
    for name in change.remove:
        spec = table.match(name).spec
        index = None if spec is None else _index(place, table, spec)
        edits.append(None if index is None else remove_entry(place.file, place.node, index))
    for old, new in change.respell.items():
        edits.append(_respell(place, old, new))
    return None if None in edits else [edit for edit in edits if edit]


def _index(place: MappingEnd, table: OptionTable, spec: OptionSpec) -> int | None:
    for index, (key, _) in enumerate(place.node.value):
        option = "--" + str(key.value).removeprefix("--")
        match = table.match(option)
        if match.spec is None:
            match = table.match(option.replace("_", "-"))
        if match.spec == spec:
            return index
    return None


def _set(place: MappingEnd, table: OptionTable, spec: OptionSpec, value: str) -> Edit | None:
    index = _index(place, table, spec)
    if index is None:
        return place.add_entry(_key(place, spec), _value(spec, value))
    key, node = place.node.value[index]
    if isinstance(node, yaml.ScalarNode) and node.style not in ("|", ">"):
        if spec.arity is Arity.MANY:
            return None
        text = "true" if spec.arity is Arity.NONE else value
        start, end = node.start_mark.index, node.end_mark.index
        return Edit(start, end, format_scalar(text, node.style, is_text=False))
    written = format_value(_value(spec, value), is_json=place.is_json)
    return Edit(key.end_mark.index, end_of(place.file, node), f": {written}")


def _value(spec: OptionSpec, value: str) -> str | list[str] | bool:
    if spec.arity is Arity.NONE:
        return True
    return value.split() if spec.arity is Arity.MANY else value


def _key(place: MappingEnd, spec: OptionSpec) -> str:
    """Return an option as a key, spelled as the other keys are: with dashes or underscores."""
    keys = [str(key.value) for key, _ in place.node.value]
    name = spec.name.removeprefix("--")
    has_underscores = any("_" in key for key in keys) and not any(
        re.search(r"\w-\w", key) for key in keys
    )
    return name.replace("-", "_") if has_underscores else name


def _respell(place: MappingEnd, old: str, new: str) -> Edit | None:
    for key, _ in place.node.value:
        if str(key.value).removeprefix("--") == old.removeprefix("--"):
            text = format_scalar(new.removeprefix("--"), key.style)
            return Edit(key.start_mark.index, key.end_mark.index, text)
    return None
