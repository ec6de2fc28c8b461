"""JSON objects from files that strangers wrote.

Stricter than `json.load`: a key that stands twice, NaN and Infinity, and anything but an object
at the top are refused, since each of them means different things to different readers. And
bounded: what no real file needs is refused before memory is spent on it.
"""

import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from inkling_runtime.adapter.regular_file import open_regular
from inkling_runtime.adapter.shown import shown_text
from inkling_runtime.errors import InklingError

MAX_JSON_BYTES = 50_000_000
"""The largest text that is parsed: four times the header of the largest released adapter with
every expert's factors apart (99 358 tensors)."""

MAX_MARKS = 2_000_000
"""The most brackets, commas and colons in it: 13 for each of 150 000 tensors. They bound what the
parsed values take, 120 bytes each at the worst."""

MAX_DEPTH = 50
"""How deep lists and objects may lie in one another."""


def decode_json(data: bytes, where: str) -> str:
    """Return the text of a JSON file that may be parsed without harm.

    Raises:
        InklingError: it is larger, or holds more values, than any real file. `where` names it.
        UnicodeDecodeError: it is not UTF-8.
    """
    require_json_size(len(data), where)
    num_marks = len(data) - len(data.translate(None, b"{[,:"))
    if num_marks > MAX_MARKS:
        raise InklingError(
            f"{where} has {num_marks} brackets, commas and colons, expected at most {MAX_MARKS}"
        )
    return data.decode("utf-8")


def require_json_size(num_bytes: int, where: str) -> None:
    """Require that a JSON text is not larger than any real one.

    Raises:
        InklingError: it is. `where` names it.
    """
    if num_bytes > MAX_JSON_BYTES:
        raise InklingError(f"{where} has {num_bytes} bytes, expected at most {MAX_JSON_BYTES}")


def parse_json_object(
    text: str,
    parse_int: Callable[[str], int] | None = None,
    *,
    keeps_last: bool = False,
    compact: Callable[[dict[str, Any]], Any] | None = None,
) -> dict[str, Any]:
    """Return the object that a JSON text holds.

    Args:
        text: of a stranger.
        parse_int: may be stricter about numbers.
        keeps_last: of keys that stand twice takes the last, as most readers do.
        compact: is given every object once it is read, and returns what is kept in its place.

    Raises:
        ValueError: not JSON, not an object, a key twice, or a number that JSON does not have.
        RecursionError: nested too deeply.
    """
    value = json.loads(
        text,
        object_pairs_hook=_hook(keeps_last, compact),
        parse_constant=_refuse_constant,
        parse_float=_finite,
        parse_int=parse_int,
    )
    if _SURROGATE.search(text):
        _require_characters(text)
    if not isinstance(value, dict):
        raise ValueError(f"it holds {_kind_of(value)}, expected an object")
    return value


def _hook(
    keeps_last: bool, compact: Callable[[dict[str, Any]], Any] | None
) -> Callable[[list[tuple[str, Any]]], Any] | None:
    if compact is None:
        return None if keeps_last else _object_without_duplicates
    make = dict if keeps_last else _object_without_duplicates
    return lambda pairs: compact(make(pairs))


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        InklingError: the file is missing, unreadable, not JSON, or not an object.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            require_json_size(size, f"`{path}`")
            text = decode_json(file.read(size + 1), f"`{path}`")
        value = parse_json_object(text)
        _require_shallow(value)
    except FileNotFoundError as error:
        raise InklingError(f"`{path}` does not exist") from error
    except OSError as error:
        raise InklingError(f"`{path}` cannot be read: {error.strerror or error}") from error
    except RecursionError as error:
        raise InklingError(f"`{path}` is nested too deeply") from error
    except ValueError as error:
        reason = explain(error)
        raise InklingError(f"`{path}` is not the JSON object it should be: {reason}") from error
    return value


def format_json(values: Mapping[str, Any]) -> str:
    """Return the text of a file that holds an object, as this package writes it."""
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def explain(error: ValueError) -> str:
    """Return what is wrong with a text that `parse_json_object` refuses."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8: {error.reason}"
    if "integer string conversion" in str(error):
        return f"a number has more than {sys.get_int_max_str_digits()} digits"
    return str(error)


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"the key `{shown_text(key)}` stands twice")
        seen.add(key)
    return result


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""The escape of half a character."""

_WITHOUT_HALVES = re.compile(
    r"""(?: [^\\]++ | \\[^u] | \\u(?![dD][89a-fA-F])
          | \\u[dD][89abAB][0-9a-fA-F]{2} \\u[dD][c-fC-F] )*+""",
    re.VERBOSE,
)
"""JSON text in which every escape of half a character has its other half beside it."""


def _require_characters(text: str) -> None:
    """Require that no string of a JSON text holds half a surrogate pair: no file can hold it."""
    if not _WITHOUT_HALVES.fullmatch(text):
        raise ValueError("a text holds half a surrogate pair")


def _require_shallow(value: object) -> None:
    """Require that later code may walk through a value by recursion."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _containers_in(parent)]
        if not level:
            return
    raise RecursionError


def _containers_in(value: Any) -> Iterable[Any]:
    children = value.values() if isinstance(value, dict) else value
    return [child for child in children if isinstance(child, dict | list)]


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"`{shown_text(text)}` is beyond every float")
    return value


def _refuse_constant(text: str) -> None:
    raise ValueError(f"`{text}` is not a JSON number")


def _kind_of(value: object) -> str:
    if value is None:
        return "null"
    return {list: "a list", str: "a string", bool: "a truth value"}.get(type(value), "a number")
