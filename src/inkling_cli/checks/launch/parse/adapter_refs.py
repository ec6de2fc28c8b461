"""The adapters that a launch names, from the values of `--lora-modules` and `--lora-paths`.

vLLM takes `name=path` or JSON with `name` and `path`; SGLang takes a path (which is then also the
name), `name=path`, or JSON with `lora_name` and `lora_path`.
"""

import json
from collections.abc import Sequence
from typing import Any

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.launch import AdapterRef, OptionUse, Problem, ProblemKind
from inkling_cli.checks.launch.parse.arguments import is_unknown

_JSON_KEYS = {Engine.VLLM: ("name", "path"), Engine.SGLANG: ("lora_name", "lora_path")}


def parse_adapters(
    use: OptionUse | None, engine: Engine
) -> tuple[tuple[AdapterRef, ...], tuple[Problem, ...]]:
    """Return the adapters of one use of the engine's adapter option, and the values that are none.

    A value that holds an unknown shell expansion is neither.
    """
    adapters: list[AdapterRef] = []
    problems: list[Problem] = []
    for value in use.values if use else ():
        place = use.location if use else Location()
        text = value.strip()
        is_nothing = not text and engine is Engine.VLLM
        if is_nothing or (is_unknown(text) and "=" not in text):
            continue
        adapter = _parse_adapter(text, engine, place)
        if isinstance(adapter, AdapterRef):
            adapters.append(adapter)
        else:
            problems.append(Problem(ProblemKind.MALFORMED_ADAPTER, value, place, (adapter,)))
    return tuple(adapters), tuple(problems)


def _parse_adapter(text: str, engine: Engine, place: Location) -> AdapterRef | str:
    """Return the adapter, or why the text names none."""
    if engine is Engine.SGLANG and text.startswith("[") and text.endswith("]"):
        return "it is a JSON list, expected one object for each adapter"
    is_json = text.startswith("{") if engine is Engine.SGLANG else "=" not in text or "," in text
    if is_json:
        return _parse_json(text, engine, place)
    if not text:
        return "it is empty"
    name, equals, path = text.partition("=")
    if not equals:
        return AdapterRef(text, text, place)
    if not path or (not name and engine is Engine.VLLM):
        return "it has an empty name or path"
    if engine is Engine.SGLANG and path != path.lstrip():
        return "it has a space after `=`"
    return AdapterRef(name, path, place)


def _parse_json(text: str, engine: Engine, place: Location) -> AdapterRef | str:
    try:
        value: Any = json.loads(text)
    except ValueError:
        return "it is neither `name=path` nor JSON"
    except RecursionError:
        return "it is nested too deeply"
    keys = _JSON_KEYS[engine]
    if not isinstance(value, dict):
        return "it is JSON but not an object"
    name, path = (value.get(key) for key in keys)
    if not isinstance(name, str) or not isinstance(path, str) or not name or not path:
        return f"it is JSON without `{keys[0]}` and `{keys[1]}`"
    pinned = value.get("pinned", False)
    if engine is Engine.SGLANG and not isinstance(pinned, int | float):
        return f"its `pinned` is {json.dumps(pinned)}, expected true or false"
    return AdapterRef(name, path, place, pinned=pinned is True or pinned == 1)


def parse_given_adapters(values: Sequence[str], place: Location) -> tuple[AdapterRef, ...]:
    """Return the adapters of inkling's own `--lora`: `PATH` or `NAME=PATH`."""
    adapters = []
    for value in values:
        name, equals, path = value.partition("=")
        if not equals or "/" in name:
            name, path = value.rstrip("/").rpartition("/")[2] or value, value
        adapters.append(AdapterRef(name, path, place, at_startup=False, source=path))
    return tuple(adapters)
