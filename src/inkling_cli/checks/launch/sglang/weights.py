"""The files of an adapter that SGLang reads: every one with the ending, not one by its name.

No rules here. The trap: whatever else lies in the folder with the same ending is a part of the
adapter to SGLang, and a tensor that two files have is taken from the last of them. Where the index
of a checkpoint lies beside them, only the files that it lists are read; the index of an adapter's
own shards is not looked at.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_runtime.adapter.adapter import Adapter
from inkling_runtime.adapter.safetensors_file import TensorInfo, read_header
from inkling_runtime.adapter.weight_files import INDEX_NAME, indexed_files, iter_weight_files
from inkling_runtime.errors import InklingError, format_names


def further_files(adapter: Adapter) -> list[Path]:
    """Return the files beside an adapter's own that SGLang reads as well, in order."""
    own = adapter.file.file_names
    try:
        return [path for path in iter_weight_files(adapter.path) if path.name not in own]
    except InklingError:
        return []


def index_problem(adapter: Adapter) -> str | None:
    """Return why the index of a checkpoint in an adapter's folder hides the adapter, or None."""
    index = adapter.path / INDEX_NAME
    if not index.is_file():
        return None
    try:
        listed = {path.name for path in indexed_files(index)}
    except InklingError as error:
        return error.message
    hidden = [name for name in adapter.file.file_names if name not in listed]
    return f"`{INDEX_NAME}` does not list {format_names(hidden)}" if hidden else None


def file_problem(path: Path) -> str | None:
    """Return why a file cannot be read, or None."""
    try:
        read_header(path)
    except InklingError as error:
        return error.message
    except OSError as error:
        return error.strerror or str(error)
    return None


def stored_tensors(adapter: AdapterFacts) -> Mapping[str, TensorInfo]:
    """Return all tensors of an adapter as SGLang reads them: file by file, each by its names.

    Files that are broken give none.
    """
    return {name: tensor for name, (_, tensor) in _read_files(adapter).items()}


def file_of(adapter: AdapterFacts, tensor: str) -> str:
    """Return the name of the file from which SGLang takes a tensor: the last that has it."""
    return _read_files(adapter)[tensor][0]


@lru_cache(maxsize=16)
def _read_files(adapter: AdapterFacts) -> Mapping[str, tuple[str, TensorInfo]]:
    files = {file.path.name: file.tensors for file in adapter.adapter.file.files}
    for path in further_files(adapter.adapter):
        try:
            files[path.name] = read_header(path).tensors
        except (InklingError, OSError):
            continue
    return {n: (file, files[file][n]) for file in sorted(files) for n in sorted(files[file])}
