"""`conversion.json` read back. Anyone may have written it, so each value is held to its kind."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from inkling_runtime.adapter.json_file import read_json_object
from inkling_runtime.adapter.provenance.proven import Action, Proven
from inkling_runtime.adapter.provenance.record import (
    RECORD_NAME,
    RECORD_VERSION,
    Record,
    RecordedSource,
    RecordedTensor,
)
from inkling_runtime.adapter.shown import shown_text, shown_value
from inkling_runtime.errors import InklingError

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


def read_record(folder: Path) -> Record:
    """Return the record in a folder.

    Raises:
        InklingError: there is none, or it is not what `format_record` gives.
    """
    path = folder / RECORD_NAME
    if not folder.exists():
        raise InklingError(f"`{folder}` does not exist")
    if not path.exists():
        raise InklingError(
            f"`{folder}` holds no `{RECORD_NAME}`, expected an adapter that inkling wrote",
            "`inkling diff` compares two adapters without it; `--in-place` leaves none",
        )
    return _Reader(path).record(read_json_object(path))


class _Reader:
    """Values of a text that anyone may have written, each held to its kind."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def record(self, values: dict[str, Any]) -> Record:
        """Return the record that an object is."""
        version = values.get("version")
        if version != RECORD_VERSION:
            raise InklingError(
                f"`{self._path}` has the version {shown_value(version)}, expected {RECORD_VERSION}",
                "check it with the version of inkling that wrote it",
            )
        sources = tuple(map(self._source, self._get(values, "sources", list)))
        places = [(i, name) for i, source in enumerate(sources) for name in sorted(source.tensors)]
        kinds = self._get(values, "kinds", list)
        tensors = self._get(values, "tensors", dict)
        modules = self._get(values, "modules", dict)
        return Record(
            self._word(values, "action", Action),
            self._get(values, "inkling", str),
            self._get(values, "dialect", str),
            self._get(values, "options", dict),
            sources,
            self._get(values, "config_sha256", str),
            self._get(values, "effect", dict),
            {name: self._tensor(name, entry, kinds, places) for name, entry in tensors.items()},
            {name: self._word(modules, name, Proven) for name in modules},
        )

    def _source(self, values: Any) -> RecordedSource:
        values = self._of_kind("sources", values, dict)
        tensors = self._get(values, "tensors", dict)
        return RecordedSource(
            self._get(values, "path", str),
            self._get(values, "dialect", str),
            self._get(values, "config_sha256", str),
            {name: self._get(tensors, name, str) for name in tensors},
        )

    def _tensor(
        self, name: str, entry: Any, kinds: list[Any], places: list[tuple[int, str]]
    ) -> RecordedTensor:
        try:
            digest, number, sources = entry
            kind = self._of_kind("kinds", kinds[_index(number)], dict)
            moves = self._get(kind, "moves", list)
            return RecordedTensor(
                self._of_kind(name, digest, str),
                self._get(kind, "dtype", str),
                tuple(map(_index, self._get(kind, "shape", list))),
                tuple(self._of_kind("moves", move, str) for move in moves),
                tuple(places[_index(source)] for source in sources),
            )
        except (IndexError, TypeError, ValueError) as error:
            raise self._fault(name, entry, "a digest, a kind and numbers of sources") from error

    def _get(self, values: Mapping[str, Any], key: str, kind: type[T]) -> T:
        return self._of_kind(key, values.get(key), kind)

    def _of_kind(self, key: str, value: Any, kind: type[T]) -> T:
        if not isinstance(value, kind):
            raise self._fault(key, value, _KINDS[kind])
        return value

    def _word(self, values: Mapping[str, Any], key: str, words: type[E]) -> E:
        text = self._get(values, key, str)
        if text not in list(words):
            raise self._fault(key, text, f"one of {', '.join(words)}")
        return words(text)

    def _fault(self, key: str, value: Any, expected: str) -> InklingError:
        return InklingError(
            f"`{shown_text(key)}` of `{self._path}` is {shown_value(value)}, expected {expected}"
        )


_KINDS: dict[type, str] = {str: "a text", list: "a list", dict: "an object"}


def _index(value: Any) -> int:
    """Return a whole number that is not negative.

    Raises:
        ValueError: it is something else.
    """
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value
