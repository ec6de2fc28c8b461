"""Folders that are converted in place, and how everybody sees them."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from conversion import plan, spec_of
from safetensors import SafetensorError, safe_open

from factories import TINY, any_bits, write_released_adapter
from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.in_place.plan import InPlacePlan, plan_in_place
from inkling_runtime.adapter.in_place.room import BLOCK_BYTES, insert_room

WEIGHTS, CONFIG, JOURNAL = "adapter_model.safetensors", "adapter_config.json", "adapter_model.undo"

DEEP = replace(TINY, layers=14)
"""A model whose names lose more bytes on the way to vLLM than its metadata gains."""

SIZES = {"grows": TINY, "fits": DEEP}

Seen = tuple[dict[str, tuple[str, tuple[int, ...], bytes]], dict[str, str], Any]


def write_source(folder: Path, room: str = "grows", **changes: Any) -> Path:
    """Write an adapter whose header grows or fits on the way to vLLM."""
    return write_released_adapter(folder, SIZES[room], fill=any_bits, dtype="F32", **changes)


def conversion_of(folder: Path, target: str, room: str = "grows") -> Conversion:
    return plan(folder, target, spec_of(SIZES[room]))


def plan_of(
    folder: Path, target: str, room: str = "grows", metadata: Mapping[str, str] | None = None
) -> InPlacePlan:
    """Return the plan in place, with metadata added to the result's."""
    conversion = conversion_of(folder, target, room)
    return plan_in_place(replace(conversion, metadata=conversion.metadata | dict(metadata or {})))


def contents_of(folder: Path) -> dict[str, bytes]:
    """Return every file's bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def without_journal(contents: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in contents.items() if name != JOURNAL}


def put_back(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Make a folder hold these files and no others, under the inodes that it has."""
    for path in folder.iterdir():
        if path.name not in contents:
            path.unlink()
    for name, data in contents.items():
        (folder / name).write_bytes(data)


def seen_by_engines(folder: Path) -> Seen | None:
    """Return what the safetensors library and a JSON parser read; None where it refuses."""
    try:
        with safe_open(folder / WEIGHTS, "pt") as file:
            tensors = {
                name: (
                    file.get_slice(name).get_dtype(),
                    tuple(file.get_slice(name).get_shape()),
                    file.get_tensor(name).numpy().tobytes(),
                )
                for name in file.keys()  # noqa: SIM118 - it is no mapping
            }
            metadata = dict(file.metadata() or {})
    except SafetensorError:
        return None
    return tensors, metadata, json.loads((folder / CONFIG).read_text())


def inserts(folder: Path) -> bool:
    """Return whether the file system inserts bytes at the start of a file."""
    probe = folder / "probe"
    probe.write_bytes(b"x")
    descriptor = os.open(probe, os.O_RDWR)
    try:
        insert_room(descriptor, BLOCK_BYTES)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)
        probe.unlink()
