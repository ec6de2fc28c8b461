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

from inkling_cli.checks.launch.text.source import Embedded, FileText
from inkling_runtime.errors import InklingError

_MAX_VALUES = 10_000
_JSON_STRING_OR_TAB = re.compile(r'"(?:[^"\\]|\\.)*"|\t', re.DOTALL)
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
        size = len(node.value)
        return Embedded(file, node.value, [start] * size, [end] * size, lambda new: None)
    starts = [start + place[0] for place in places]
    ends = [start + place[1] for place in places]
    return Embedded(file, node.value, starts, ends, _Put(file, node).put)


_Places = list[tuple[int, int]] | None


def _escaped_places(raw: str, value: str) -> _Places:
    """Match the characters of a double-quoted scalar, escapes undone."""
    places: list[tuple[int, int]] = []
    position = 1
    for character in value:
        while (line := re.match(r"\\\r?\n[ \t]*", raw[position:])) is not None:
            position += len(line[0])
        escape = _ESCAPE.match(raw, position)
        if escape is None and raw[position] != character:
            return None
        end = escape.end() if escape else position + 1
        places.append((position, end))
        position = end
    return places if position == len(raw) - 1 else None


def _plain_places(raw: str, value: str, *, is_quoted: bool) -> _Places:
    """Match the characters of a plain or single-quoted scalar; a line break stands for a blank."""
    places: list[tuple[int, int]] = []
    position = int(is_quoted)
    for character in value:
        size = 2 if is_quoted and raw.startswith("''", position) else 1
        if character == " " and (folded := re.match(r"[ \t]*\r?\n[ \t]*", raw[position:])):
            size = len(folded[0])
        elif raw[position : position + 1] != character:
            return None
        places.append((position, position + size))
        position += size
    return places if position == len(raw) - int(is_quoted) else None


def _block_places(raw: str, value: str) -> _Places:
    """Match the characters of a `|` or `>` scalar: indentation is left out, lines may be folded."""
    header = re.match(r"[|>][^\n]*\n", raw)
    if header is None:
        return None
    position = header.end()
    indent = next((len(m[1]) for m in re.finditer(r"^( *)[^ \n]", raw[position:], re.M)), 0)
    places: list[tuple[int, int]] = []
    position = _skip_indent(raw, position, indent)
    for character in value:
        found = raw[position : position + 1]
        if found == "\r":
            found, width = "\n", 2
        else:
            width = 1
        if found == character and found != "\n":
            places.append((position, position + 1))
            position += 1
        elif found == "\n" and character in " \n":
            end = _skip_indent(raw, position + width, indent)
            places.append((position, end))
            position = end
        else:
            return None
    return places


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
        found = re.search(r"\n( *)[^ \n]", first)
        if found is None:
            return None
        return text.replace("\n", self.file.newline + found[1])

    def _is_plain(self, text: str) -> bool:
        return "\n" not in text and not re.search(r": |:$| #|^#", text)
