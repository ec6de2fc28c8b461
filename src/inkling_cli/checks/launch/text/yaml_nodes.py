"""A YAML or JSON text → its nodes, whose marks tell where everything stands.

JSON is read by the YAML reader, which tells lines. What has no bound (aliases that multiply, a
node that contains itself) is refused.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from inkling_cli.checks.launch.text.source import Embedded, FileText, unchangeable
from inkling_runtime.errors import InklingError

_MAX_VALUES = 10_000
_JSON_STRING_OR_TAB = re.compile(r'"(?:[^"\\]|\\.)*"|\t', re.DOTALL)
_FOLD = re.compile(r"[ \t]*\r?\n[ \t]*")
_BREAK = re.compile(r"\r?\n")
_BREAKS = re.compile(r"\r?\n(?: *\r?\n)*")
_JOINED_LINES = re.compile(r"\\\r?\n[ \t]*")
_ESCAPE = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a YAML text: its root, and the loader that makes values of nodes."""

    root: yaml.Node
    loader: yaml.SafeLoader
    name: str

    def value(self, node: yaml.Node) -> Any:
        """Return what a node stands for.

        Raises:
            InklingError: it is no value, as a date in a thirteenth month.
        """
        with _yaml_errors(self.name):
            return self.loader.construct_object(node, deep=True)

    def text(self, node: yaml.Node | None) -> str | None:
        """Return a scalar as text, numbers and switches as they are written; None if it is none."""
        return node.value if isinstance(node, yaml.ScalarNode) else None

    def entries(self, node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """Yield the entries of a mapping, merge keys followed: key, key node, value node."""
        if not isinstance(node, yaml.MappingNode):
            return
        with _yaml_errors(self.name):
            self.loader.flatten_mapping(node)
        for key, value in node.value:
            yield str(self.value(key)), key, value

    def child(self, node: yaml.Node | None, key: str) -> yaml.Node | None:
        """Return the value of a key of a mapping, or None."""
        return next((value for name, _, value in self.entries(node) if name == key), None)


def read_documents(file: FileText) -> list[Document]:
    """Return the documents of a YAML or JSON text; empty ones are left out.

    Raises:
        InklingError: it is not YAML, or stands for too much.
    """
    text = file.text
    if text.lstrip()[:1] in ("{", "["):
        text = _JSON_STRING_OR_TAB.sub(lambda m: " " if m[0] == "\t" else m[0], text)
    with _yaml_errors(file.name):
        return list(_iter_documents(text, file.name))


@contextmanager
def _yaml_errors(name: str) -> Iterator[None]:
    """Turn what the reader raises into errors that name the file."""
    try:
        yield
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        raise InklingError(f"`{name}` is not readable as YAML: {_reason(error)}") from error
    except RecursionError as error:
        raise InklingError(f"`{name}` is nested too deeply") from error


def _iter_documents(text: str, name: str) -> Iterator[Document]:
    loader = yaml.SafeLoader(text)
    while loader.check_node():
        root = loader.get_node()
        if root is None or _is_empty(root):
            continue
        _count_values(root, {}, name)
        yield Document(root, loader, name)


def _is_empty(root: yaml.Node) -> bool:
    return isinstance(root, yaml.ScalarNode) and not root.value and root.style is None


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


def kind_of(node: yaml.Node) -> str:
    """Return what a node is, in words."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    return "a list" if isinstance(node, yaml.SequenceNode) else "a single value"


def _reason(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f" in line {mark.line + 1}" if mark else ""
    return f"{getattr(error, 'problem', None) or error}{where}"


def embed_scalar(file: FileText, node: yaml.ScalarNode) -> Embedded:
    """Return a scalar's text with the place of each of its characters.

    A character that the reader cannot place (in a flow scalar over several lines, say) takes the
    place of the whole scalar, and nothing can be written there.
    """
    start, end = node.start_mark.index, node.end_mark.index
    raw = file.text[start:end]
    if node.style == '"':
        places = _escaped_places(raw, node.value)
    elif node.style in ("|", ">"):
        places = _block_places(raw, node.value)
    else:
        places = _plain_places(raw, node.value, is_quoted=node.style == "'")
    if places is None:
        return unchangeable(file, node.value, start, end)
    starts = [start + place[0] for place in places]
    ends = [start + place[1] for place in places]
    return Embedded(file, node.value, starts, ends, _Put(file, node).put)


_Places = list[tuple[int, int]] | None


def _escaped_places(raw: str, value: str) -> _Places:
    """Match the characters of a double-quoted scalar, escapes undone."""
    places: list[tuple[int, int]] = []
    position = 1
    for number, character in enumerate(value):
        while line := _JOINED_LINES.match(raw, position):
            position = line.end()
        folded = _fold_end(raw, position, value, number)
        escape = _ESCAPE.match(raw, position)
        if folded is None and escape is None and raw[position : position + 1] != character:
            return None
        end = folded or (escape.end() if escape else position + 1)
        places.append((position, end))
        position = end
    return places if position == len(raw) - 1 else None


def _plain_places(raw: str, value: str, *, is_quoted: bool) -> _Places:
    """Match the characters of a plain or single-quoted scalar."""
    places: list[tuple[int, int]] = []
    position = int(is_quoted)
    for number, character in enumerate(value):
        end = _fold_end(raw, position, value, number)
        if end is None:
            end = position + (2 if is_quoted and raw.startswith("''", position) else 1)
            if raw[position : position + 1] != character:
                return None
        places.append((position, end))
        position = end
    return places if position == len(raw) - int(is_quoted) else None


def _fold_end(raw: str, position: int, value: str, number: int) -> int | None:
    """Return where the line breaks end that stand for a character of a flow scalar, if any do.

    One break stands for a blank; of several the first stands for nothing.
    """
    if value[number] not in " \n" or not (first := _FOLD.match(raw, position)):
        return None
    if value[number] == " " or value[number - 1 : number] == "\n":
        return first.end()
    second = _FOLD.match(raw, first.end())
    return second.end() if second else None


def _block_places(raw: str, value: str) -> _Places:
    """Match the characters of a `|` or `>` scalar: indentation is left out, lines may be folded."""
    header = re.match(r"[|>][^\n]*\n", raw)
    if header is None:
        return None
    position = header.end()
    indent = next((len(m[1]) for m in re.finditer(r"^( *)[^ \r\n]", raw[position:], re.M)), 0)
    places: list[tuple[int, int]] = []
    position = _skip_indent(raw, position, indent)
    for number, character in enumerate(value):
        start = position
        if character in " \n" and _BREAK.match(raw, position):
            count = 1
            if character == "\n" and value[number - 1 : number] != "\n":
                count += _num_dropped(raw, position, value, number)
            for _ in range(count):
                found = _BREAK.match(raw, position)
                position = _skip_indent(raw, found.end() if found else position, indent)
        elif raw[position : position + 1] == character:
            position += 1
        else:
            return None
        places.append((start, position))
    return places


def _num_dropped(raw: str, position: int, value: str, number: int) -> int:
    """Return how many of the line breaks at a place of a folded scalar stand for nothing."""
    breaks = _BREAKS.match(raw, position)
    meant = len(value) - number - len(value[number:].lstrip("\n"))
    is_end = number + meant == len(value)
    if raw[0] != ">" or breaks is None or is_end:
        return 0
    return max(0, breaks[0].count("\n") - meant)


def _skip_indent(raw: str, position: int, indent: int) -> int:
    end = position
    while end < len(raw) and end - position < indent and raw[end] == " ":
        end += 1
    return end


@dataclass(frozen=True, slots=True, eq=False)
class _Put:
    """Writes characters inside a scalar."""

    file: FileText
    node: yaml.ScalarNode

    def put(self, text: str) -> str | None:
        style = self.node.style
        if style in ("|", ">"):
            return self._in_block(text)
        if style == '"':
            return json.dumps(text, ensure_ascii=False)[1:-1]
        if style == "'":
            return None if "\n" in text else text.replace("'", "''")
        return text if self._is_plain(text) else None

    def _in_block(self, text: str) -> str | None:
        """Indent further lines as the first line of the scalar is."""
        first = self.file.text[self.node.start_mark.index : self.node.end_mark.index]
        found = re.search(r"\n( *)[^ \r\n]", first)
        if found is None:
            return None
        return text.replace("\n", self.file.newline + found[1])

    def _is_plain(self, text: str) -> bool:
        return "\n" not in text and not re.search(r": |:$| #|^#", text)
