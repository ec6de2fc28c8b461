"""Edits of a YAML or JSON file that change an entry or an item and leave all else as it is.

Works on the marks of PyYAML's nodes. The trap: the end mark of a block collection lies behind the
blank lines and comments that follow it; the end that counts is the one of its last scalar.
"""

import json
import re
from collections.abc import Sequence

import yaml

from inkling_cli.checks.launch.text.origins import format_scalar
from inkling_cli.checks.launch.text.source import Edit, FileText


def end_of(file: FileText, node: yaml.Node) -> int:
    """Return where a node's last character stands, comments behind it not included."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return end_of(file, last[1] if isinstance(last, tuple) else last)
    end: int = node.end_mark.index
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return len(file.text[:end].rstrip())
    return end


def insert_entry(
    file: FileText, mapping: yaml.MappingNode, key: str, value: str, after: int | None = None
) -> Edit | None:
    """Return the edit that adds `key: value` to a mapping, `value` being YAML already.

    Args:
        file: the file.
        mapping: the mapping; it must not be empty.
        key: the new key.
        value: its value as it is written; in a block mapping it may have several lines, each
            further one indented by as much as the key is; it may begin on a new line.
        after: the entry behind which it is put, the last one by default.
    """
    if not mapping.value:
        return None
    first_key = mapping.value[0][0]
    style = first_key.style if isinstance(first_key, yaml.ScalarNode) else None
    written = format_scalar(key, style)
    neighbour = mapping.value[-1 if after is None else after][1]
    end = end_of(file, neighbour)
    if mapping.flow_style:
        separator = _flow_separator(file, mapping)
        return Edit(end, end, f",{separator}{written}: {value}")
    indent = " " * first_key.start_mark.column
    end = file.line_end(end)
    blank = "" if value.startswith("\n") else " "
    lines = f"{written}:{blank}{value}".replace("\n", file.newline + indent)
    return Edit(end, end, f"{file.newline}{indent}{lines}")


def insert_items(
    file: FileText,
    sequence: yaml.SequenceNode,
    items: Sequence[str],
    after: yaml.Node | None = None,
) -> Edit | None:
    """Return the edit that adds items to a list, each being YAML already.

    Args:
        file: the file.
        sequence: the list; it must not be empty.
        items: what is added.
        after: the item behind which it is added; the last one by default.
    """
    if not sequence.value:
        return None
    end = end_of(file, after or sequence.value[-1])
    if sequence.flow_style:
        separator = _flow_separator(file, sequence)
        return Edit(end, end, "".join(f",{separator}{item}" for item in items))
    dash = file.text.rfind("-", 0, sequence.value[-1].start_mark.index)
    column = dash - file.line_start(dash)
    between = file.text[dash + 1 : sequence.value[-1].start_mark.index]
    blank = between if between and not between.strip(" ") else " "
    end = file.line_end(end)
    indent = file.newline + " " * column + "-" + blank
    inner = file.newline + " " * (column + 1) + blank
    return Edit(end, end, "".join(indent + item.replace("\n", inner) for item in items))


def remove_entry(file: FileText, mapping: yaml.MappingNode, index: int) -> Edit | None:
    """Return the edit that removes an entry; None if nothing would be left."""
    children = [(key.start_mark.index, end_of(file, value)) for key, value in mapping.value]
    return _remove(file, children, index, 1, is_flow=bool(mapping.flow_style))


def remove_items(
    file: FileText, sequence: yaml.SequenceNode, index: int, count: int
) -> Edit | None:
    """Return the edit that removes neighbouring items; None if nothing would be left."""
    children = [(item.start_mark.index, end_of(file, item)) for item in sequence.value]
    return _remove(file, children, index, count, is_flow=bool(sequence.flow_style))


def _remove(
    file: FileText, children: list[tuple[int, int]], index: int, count: int, *, is_flow: bool
) -> Edit | None:
    if count >= len(children):
        return None
    start, end = children[index][0], children[index + count - 1][1]
    if not is_flow:
        start, end = file.line_start(start), file.line_end(end)
        is_last_line = end + len(file.newline) > len(file.text)
        if is_last_line:
            return Edit(start - len(file.newline), end, "")
        return Edit(start, end + len(file.newline), "")
    if index + count < len(children):
        return Edit(start, children[index + count][0], "")
    return Edit(children[index - 1][1], end, "")


def _flow_separator(file: FileText, node: yaml.CollectionNode) -> str:
    """Return the blanks between the last two children of a flow collection, or one blank."""
    pairs = [child if isinstance(child, tuple) else (child, child) for child in node.value]
    if len(pairs) > 1:
        between = file.text[end_of(file, pairs[-2][1]) : pairs[-1][0].start_mark.index]
        if found := re.fullmatch(r"\s*,(\s*)", between):
            return found[1]
    elif found := re.match(r"[\[{](\s*\n\s*)", file.text[node.start_mark.index :]):
        return found[1]
    return " "


def format_value(value: str | list[str] | bool, *, is_json: bool) -> str:
    """Return an option's value as a YAML value on one line: text, a list, a switch."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_json and not (isinstance(value, str) and re.fullmatch(r"-?\d+", value)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ", ".join(format_scalar(item, None) for item in value) + "]"
    return format_scalar(value, None, is_text=False)
