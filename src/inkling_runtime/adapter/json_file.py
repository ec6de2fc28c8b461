"""JSON objects from files that strangers wrote.

Stricter than `json.load`: a key that stands twice, NaN and Infinity, and anything but an object
at the top are refused, since each of them means different things to different readers.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

from inkling_runtime.adapter.regular_file import open_regular
from inkling_runtime.errors import InklingError


def parse_json_object(text: str) -> dict[str, Any]:
    """Return the object that a JSON text holds.

    Raises:
        ValueError: not JSON, not an object, a key twice, or a number that JSON does not have.
        RecursionError: nested too deeply.
    """
    value = json.loads(
        text,
        object_pairs_hook=_object_without_duplicates,
        parse_constant=_refuse_constant,
        parse_float=_finite,
    )
    if _SURROGATE.search(text):
        _require_characters(value)
    if not isinstance(value, dict):
        raise ValueError(f"it holds {_kind_of(value)}, expected an object")
    return value


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        InklingError: the file is missing, unreadable, not JSON, or not an object.
    """
    try:
        with open_regular(path) as file:
            return parse_json_object(file.read().decode("utf-8"))
    except FileNotFoundError as error:
        raise InklingError(f"`{path}` does not exist") from error
    except OSError as error:
        raise InklingError(f"`{path}` cannot be read: {error.strerror or error}") from error
    except RecursionError as error:
        raise InklingError(f"`{path}` is nested too deeply") from error
    except ValueError as error:
        raise InklingError(f"`{path}` is not the JSON object it should be: {error}") from error


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"the key `{key}` stands twice")
        seen.add(key)
    return result


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""The escape of half a character."""


def _require_characters(value: object) -> None:
    """Require that no text holds half a surrogate pair: no file can hold it again."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("a text holds half a surrogate pair") from error


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"`{text}` is beyond every float")
    return value


def _refuse_constant(text: str) -> None:
    raise ValueError(f"`{text}` is not a JSON number")


def _kind_of(value: object) -> str:
    if value is None:
        return "null"
    return {list: "a list", str: "a string", bool: "a truth value"}.get(type(value), "a number")
