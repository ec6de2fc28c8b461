"""A file of prompts (JSONL) as values: one task a line.

Everything is looked at before the model is loaded, so that a mistake in the last line costs
seconds. What a line does not say is as on the command line.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from inkling_cli.generation.asked import BASE, Prompt
from inkling_runtime.errors import InklingError, format_names


@dataclass(frozen=True, slots=True)
class Task:
    """One line: a prompt, how it is continued, and the name that its result has."""

    id: str | int
    line: int
    prompt: Prompt
    adapter: str | None
    sampling: Mapping[str, Any]
    """Fields of `SamplingParams`, all that were given in the line or on the command line."""
    effort: str

    @property
    def fingerprint(self) -> str:
        """What tells this request from another one under the same id."""
        prompt = self.prompt.text, self.prompt.messages, self.prompt.ids
        asked = [prompt, self.adapter, dict(self.sampling), self.effort]
        text = json.dumps(asked, sort_keys=True, ensure_ascii=False)
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a field may hold."""

    types: tuple[type, ...]
    words: str

    def holds(self, value: Any) -> bool:
        """Whether a value is of this kind; true and false are no numbers."""
        return isinstance(value, self.types) and isinstance(value, bool) is (bool in self.types)


_WHOLE = _Kind((int,), "a whole number")
_NUMBER = _Kind((int, float), "a number")
_TEXT = _Kind((str,), "a text")
_LIST = _Kind((list,), "a list")
_FLAG = _Kind((bool,), "true or false")

_PROMPTS: Mapping[str, _Kind] = {"prompt": _TEXT, "messages": _LIST, "prompt_ids": _LIST}
_SAMPLING: Mapping[str, _Kind] = {
    "max_tokens": _WHOLE,
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "top_k": _WHOLE,
    "seed": _WHOLE,
    "stop": _Kind((str, list), "a text or a list of texts"),
    "stop_ids": _LIST,
    "top_logprobs": _WHOLE,
    "prompt_logprobs": _FLAG,
}
_OTHERS: Mapping[str, _Kind] = {
    "id": _Kind((str, int), "a text or a whole number"),
    "adapter": _TEXT,
    "effort": _Kind((str, int, float), "a word or a number"),
}
_FIELDS = {**_OTHERS, **_PROMPTS, **_SAMPLING}
_LISTED: Mapping[str, type] = {"stop": str, "stop_ids": int, "prompt_ids": int, "messages": dict}


def read_tasks(
    path: Path,
    adapters: Sequence[str],
    adapter: str | None,
    sampling: Mapping[str, Any],
    effort: str,
) -> list[Task]:
    """Return the tasks of a file, in its order; empty lines are passed over.

    Args:
        path: a JSON object a line.
        adapters: the loaded adapters.
        adapter: what a line runs with that names none; None: the only loaded one, or the base.
        sampling: what a line does not say.
        effort: what a line does not say.

    Raises:
        InklingError: the file cannot be read, or a line is not a task; the line's number is told.
    """
    try:
        lines = path.read_text("utf-8").split("\n")
    except OSError as error:
        raise InklingError(f"`{path}` cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InklingError(f"`{path}` is not UTF-8: {error}") from error
    tasks: dict[str | int, Task] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            task = _parse_task(line, number, adapters, adapter, sampling, effort)
        except InklingError as error:
            raise InklingError(f"`{path}`, line {number}: {error.message}", error.hint) from error
        if task.id in tasks:
            raise InklingError(
                f"`{path}`, line {number}: the id `{task.id}` is that of line "
                f"{tasks[task.id].line}, too; expected one of its own"
            )
        tasks[task.id] = task
    if not tasks:
        raise InklingError(f"`{path}` holds no prompt, expected a JSON object a line")
    return list(tasks.values())


def _parse_task(
    line: str,
    number: int,
    adapters: Sequence[str],
    adapter: str | None,
    sampling: Mapping[str, Any],
    effort: str,
) -> Task:
    fields = _parse_fields(line)
    own = {key: _as_given(key, fields[key]) for key in _SAMPLING if key in fields}
    return Task(
        id=fields.get("id", number),
        line=number,
        prompt=_parse_prompt(fields),
        adapter=_choose_adapter(fields.get("adapter", adapter), adapters),
        sampling={**sampling, **own},
        effort=str(fields.get("effort", effort)),
    )


def _parse_fields(line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InklingError(f"it is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise InklingError("it is not a JSON object")
    unknown = sorted(fields.keys() - _FIELDS.keys())
    if unknown:
        raise InklingError(
            f"it has the unknown field {format_names(unknown)}",
            "known are " + ", ".join(f"`{name}`" for name in _FIELDS),
        )
    fields = {name: value for name, value in fields.items() if value is not None}
    for name, value in fields.items():
        if not _FIELDS[name].holds(value):
            shown = json.dumps(value, ensure_ascii=False)[:60]
            raise InklingError(f"`{name}` is {shown}, expected {_FIELDS[name].words}")
        _require_items(name, value)
    return fields


def _require_items(name: str, value: Any) -> None:
    """Require the members of a list to be of one kind."""
    wanted = _LISTED.get(name)
    if wanted is None or not isinstance(value, list):
        return
    for item in value:
        if not isinstance(item, wanted) or isinstance(item, bool):
            words = {str: "texts", int: "whole numbers", dict: "objects"}[wanted]
            shown = json.dumps(item, ensure_ascii=False)[:60]
            raise InklingError(f"`{name}` holds {shown}, expected {words} only")


def _as_given(name: str, value: Any) -> Any:
    """Return a value as `SamplingParams` takes it."""
    if name == "stop" and isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


def _parse_prompt(fields: Mapping[str, Any]) -> Prompt:
    given = [name for name in _PROMPTS if name in fields]
    if len(given) != 1:
        known = ", ".join(f"`{name}`" for name in _PROMPTS)
        has = " and ".join(f"`{name}`" for name in given) if given else "none"
        raise InklingError(f"it has {has} of {known}, expected one of them")
    (name,) = given
    value = fields[name]
    if name == "prompt":
        return Prompt(value, text=value)
    if name == "messages":
        return Prompt(f"{len(value)} messages", messages=tuple(value))
    return Prompt(" ".join(map(str, value)), ids=tuple(value))


def _choose_adapter(name: str | None, adapters: Sequence[str]) -> str | None:
    """Return the adapter of a line; None: the base model."""
    if name == BASE:
        return None
    if name is None:
        if len(adapters) > 1:
            raise InklingError(
                f"it names no adapter, and {len(adapters)} are loaded: {format_names(adapters)}",
                f'write `"adapter": "{adapters[0]}"` (or "{BASE}") there, or pass `--adapter`',
            )
        return adapters[0] if adapters else None
    if name not in adapters:
        known = ", ".join(f"`{known}`" for known in [*adapters, BASE])
        raise InklingError(f"the adapter `{name}` is not loaded, expected one of {known}")
    return name
