"""`conversion.json`: what a written adapter was made of, so that anyone can check it later.

A value and its text, no work. It is no signature: whoever can change the adapter can change it as
well. The same conversion gives the same text on every machine. Names that many tensors share are
said once, so that an adapter of 100 000 tensors stays within the bounds of `json_file`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from inkling_runtime.adapter.convert.options import Options, Outer
from inkling_runtime.adapter.provenance.proven import Action, Proven
from inkling_runtime.adapter.shown import shown_value
from inkling_runtime.adapter.sites import Group
from inkling_runtime.errors import InklingError

RECORD_NAME = "conversion.json"
RECORD_VERSION = 1

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class RecordedSource:
    """An adapter that was read: its path as the user gave it, and tensor → SHA-256."""

    path: str
    dialect: str
    config_sha256: str
    tensors: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RecordedTensor:
    """A tensor that was written.

    `sources` are the number of an adapter and the name of a tensor of it each.
    """

    sha256: str
    dtype: str
    shape: tuple[int, ...]
    moves: tuple[str, ...]
    sources: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """What was done.

    Attributes:
        action: converted, resized or merged.
        inkling: the version that did it.
        dialect: of the result.
        options: what was asked for beyond the dialect, as values of JSON.
        sources: the adapters that were read.
        config_sha256: of the written adapter_config.json.
        effect: its keys that decide the effect.
        tensors: by name.
        modules: what was shown of each when it was written.
    """

    action: Action
    inkling: str
    dialect: str
    options: Mapping[str, Any]
    sources: tuple[RecordedSource, ...]
    config_sha256: str
    effect: Mapping[str, Any]
    tensors: Mapping[str, RecordedTensor]
    modules: Mapping[str, Proven]


def options_object(options: Options) -> dict[str, Any]:
    """Return options as values of JSON."""
    return {
        "dtype": options.dtype,
        "dropped": sorted(options.dropped),
        "fold_scaling": options.fold_scaling,
        "force": options.force,
        "outer": options.outer,
        "shard_size": options.shard_size,
    }


def options_of(record: Record) -> Options:
    """Return the options of a record.

    Raises:
        InklingError: one is not of its kind.
    """
    values = record.options
    try:
        return Options(
            force=values["force"] is True,
            dtype=None if values["dtype"] is None else str(values["dtype"]),
            fold_scaling=values["fold_scaling"] is True,
            outer=None if values["outer"] is None else Outer(values["outer"]),
            dropped=frozenset(map(Group, values["dropped"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InklingError(
            f"`options` of `{RECORD_NAME}` is {shown_value(dict(values))}, "
            "expected those of a conversion"
        ) from error


def format_record(record: Record) -> Iterator[str]:
    """Yield the lines of a record's text; a line for each tensor and module."""
    numbers = {
        (index, name): number
        for number, (index, name) in enumerate(
            (index, name)
            for index, source in enumerate(record.sources)
            for name in sorted(source.tensors)
        )
    }
    kinds: dict[tuple[str, tuple[int, ...], tuple[str, ...]], int] = {}
    for _, tensor in sorted(record.tensors.items()):
        kinds.setdefault((tensor.dtype, tensor.shape, tensor.moves), len(kinds))
    yield "{"
    for key, value in _head_of(record).items():
        yield f"{_json(key)}: {_json(value)},"
    yield '"sources": ['
    for index, source in enumerate(record.sources):
        last = index == len(record.sources) - 1
        head = {"path": source.path, "dialect": source.dialect}
        head |= {"config_sha256": source.config_sha256}
        yield f'{_json(head)[:-1]}, "tensors": {{'
        yield from _lines(source.tensors.items())
        yield "}}" if last else "}},"
    yield "],"
    yield '"kinds": ['
    yield from _separated(
        _json({"dtype": dtype, "shape": shape, "moves": moves}) for dtype, shape, moves in kinds
    )
    yield "],"
    yield '"tensors": {'
    yield from _lines(
        (
            name,
            [
                tensor.sha256,
                kinds[tensor.dtype, tensor.shape, tensor.moves],
                [numbers[source] for source in tensor.sources],
            ],
        )
        for name, tensor in record.tensors.items()
    )
    yield "},"
    yield '"modules": {'
    yield from _lines(record.modules.items())
    yield "}"
    yield "}"


def _head_of(record: Record) -> dict[str, Any]:
    return {
        "version": RECORD_VERSION,
        "action": record.action,
        "inkling": record.inkling,
        "dialect": record.dialect,
        "options": record.options,
        "config_sha256": record.config_sha256,
        "effect": record.effect,
    }


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _lines(items: Iterable[tuple[str, Any]]) -> Iterator[str]:
    yield from _separated(f"{_json(key)}: {_json(value)}" for key, value in sorted(items))


def _separated(lines: Iterator[str]) -> Iterator[str]:
    before = None
    for line in lines:
        if before is not None:
            yield f"{before},"
        before = line
    if before is not None:
        yield before
