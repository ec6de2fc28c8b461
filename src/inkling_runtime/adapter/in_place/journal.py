"""The journal beside the weights: what an in-place conversion found and what it makes of it.

Its name does not end in `.safetensors`, because SGLang reads every file of a folder that does.
Inside it is such a file nevertheless, all tensors bytes, so that the one careful reader of headers
reads it. It is in place before the first byte of the weights changes, and stays for the undo.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from inkling_runtime.adapter.adapter_weights import WEIGHTS_NAME
from inkling_runtime.adapter.in_place.durable import remove_file, replace_file
from inkling_runtime.adapter.regular_file import open_regular
from inkling_runtime.adapter.safetensors_file import (
    MAX_HEADER_BYTES,
    SafetensorsFile,
    TensorSpec,
    format_header,
    read_header,
)
from inkling_runtime.errors import InklingError

JOURNAL_NAME = "adapter_model.undo"

MAX_PATCH_BYTES = 64 * 1024 * 1024
"""Payload that one conversion may change: it is in memory and in the journal twice."""

_MAX_JOURNAL_BYTES = 2 * (MAX_HEADER_BYTES + 2 * MAX_PATCH_BYTES)
_PAYLOAD_KEY = "inkling.payload_bytes"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All bytes of a folder that a conversion may change, at one time.

    `header` includes its length prefix and its padding: it is all that is before the payload.
    `patches` are parts of the payload by their place in it.
    """

    header: bytes
    config: bytes
    patches: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Journal:
    """The folder as it was at first and as the latest conversion leaves it.

    Both snapshots have the same parts of the payload.
    """

    original: Snapshot
    converted: Snapshot
    payload_bytes: int


def journal_path(folder: Path) -> Path:
    """Return where the journal of an adapter folder is, if it has one."""
    return folder / JOURNAL_NAME


def write_journal(folder: Path, journal: Journal) -> None:
    """Write the journal of a folder, durably, over the one it has."""
    parts = _parts(journal)
    specs = [TensorSpec(name, "U8", (len(data),)) for name, data in parts.items()]
    header = format_header(specs, {_PAYLOAD_KEY: str(journal.payload_bytes)})
    replace_file(journal_path(folder), b"".join([header, *parts.values()]), folder / WEIGHTS_NAME)


def remove_journal(folder: Path) -> None:
    """Remove the journal of a folder, if it has one."""
    remove_file(journal_path(folder))


def read_journal(folder: Path) -> Journal | None:
    """Return the journal of a folder, None if it has none.

    Raises:
        InklingError: it cannot be read, or no in-place conversion wrote it.
    """
    path = journal_path(folder)
    if not os.path.lexists(path):
        return None
    try:
        size = path.stat().st_size
        if size > _MAX_JOURNAL_BYTES:
            raise ValueError(f"it has {size} bytes, expected at most {_MAX_JOURNAL_BYTES}")
        return _parse(read_header(path))
    except OSError as error:
        raise InklingError(f"`{path}` cannot be read: {error.strerror or error}") from error
    except (InklingError, ValueError) as error:
        if isinstance(error.__cause__, OSError):
            raise
        raise InklingError(
            f"`{path}` is not what an in-place conversion leaves: {error}",
            "remove it if you do not know it",
        ) from error


def _parts(journal: Journal) -> dict[str, bytes]:
    parts = {}
    for when in ("original", "converted"):
        snapshot: Snapshot = getattr(journal, when)
        parts[f"{when}.header"] = snapshot.header
        parts[f"{when}.config"] = snapshot.config
        for start, data in sorted(snapshot.patches.items()):
            parts[f"{when}.payload.{start}"] = data
    return parts


def _parse(file: SafetensorsFile) -> Journal:
    payload_bytes = _place(file.metadata.get(_PAYLOAD_KEY, ""))
    with open_regular(file.path) as opened:
        parts = {}
        for tensor in file.tensors.values():
            opened.seek(tensor.start)
            parts[tensor.name] = opened.read(tensor.nbytes)
    original, converted = (_snapshot(when, parts) for when in ("original", "converted"))
    places, others = (
        {start: len(data) for start, data in snapshot.patches.items()}
        for snapshot in (original, converted)
    )
    if places != others:
        raise ValueError("its two states change other parts of the payload")
    if any(start + size > payload_bytes for start, size in places.items()):
        raise ValueError(f"it changes bytes behind a payload of {payload_bytes} bytes")
    return Journal(original, converted, payload_bytes)


def _snapshot(when: str, parts: Mapping[str, bytes]) -> Snapshot:
    header, config = parts.get(f"{when}.header", b""), parts.get(f"{when}.config", b"")
    if len(header) < 8 or 8 + int.from_bytes(header[:8], "little") != len(header):
        raise ValueError(f"its header `{when}` has {len(header)} bytes, not those it says")
    prefix = f"{when}.payload."
    patches = {
        _place(name.removeprefix(prefix)): data
        for name, data in parts.items()
        if name.startswith(prefix)
    }
    return Snapshot(header, config, patches)


def _place(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise ValueError(f"`{text[:20]}` is not a place or a size")
    return int(text)
