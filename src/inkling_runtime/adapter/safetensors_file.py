"""Read and write safetensors files by header and byte range.

Not a tensor library: nothing here knows what a number is. The header is checked completely
(length, UTF-8, JSON, duplicate keys, dtypes, shapes, offsets, gaps and overlaps) before anything
of the size that it claims is allocated, because adapter files come from strangers.
"""

import json
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from inkling_runtime.adapter.json_file import (
    decode_json,
    explain,
    parse_json_object,
    require_json_size,
)
from inkling_runtime.adapter.regular_file import open_regular
from inkling_runtime.adapter.shown import shown_text, shown_value
from inkling_runtime.errors import InklingError

MAX_HEADER_BYTES = 100_000_000
"""The limit that the safetensors library itself sets; what is parsed is half of it at most."""

MAX_NAME_LENGTH = 1000
"""Of a tensor's name, in characters; the longest in use are below 150."""

MAX_DIMENSIONS = 32
"""Of a tensor; what is stored has at most three."""

DTYPE_BITS: Mapping[str, int] = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
"""Bits per element, in the order in which the library sorts tensors within a file (ascending)."""

_DTYPE_ORDER = {dtype: rank for rank, dtype in enumerate(DTYPE_BITS)}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a file: its name, dtype, shape and byte range from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return self.end - self.start

    @property
    def num_elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    """A parsed header. `tensors` is in the order of the header."""

    path: Path
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]
    file_size: int
    mtime_ns: int
    """When the file was last changed, as of its header."""


def read_header(path: Path, *, keeps_last: bool = False) -> SafetensorsFile:
    """Return the header of a safetensors file.

    Args:
        path: of the file.
        keeps_last: takes the last of entries of one name, as the safetensors library does.

    Raises:
        InklingError: the file cannot be read, or its header is not exactly what the format says.
    """
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            text = _read_header_bytes(file, path, status.st_size)
    except OSError as error:
        raise InklingError(f"`{path}` cannot be read: {error.strerror or error}") from error
    return _parse_header(text, path, status, keeps_last)


def _read_header_bytes(file: BinaryIO, path: Path, file_size: int) -> bytes:
    prefix = file.read(8)
    if len(prefix) < 8:
        raise InklingError(
            f"`{path}` has {file_size} bytes, a safetensors file has at least 8",
            "the file is empty or was cut; fetch it again",
        )
    length = struct.unpack("<Q", prefix)[0]
    if length > MAX_HEADER_BYTES:
        raise InklingError(
            f"`{path}` claims a header of {length} bytes, the format allows {MAX_HEADER_BYTES}",
            "the file is not in the safetensors format",
        )
    if length > file_size - 8:
        raise InklingError(
            f"`{path}` claims a header of {length} bytes but only {file_size - 8} follow",
            "the file was cut; fetch it again",
        )
    require_json_size(length, f"the header of `{path}`")
    text = file.read(length)
    if len(text) < length:
        raise InklingError(f"`{path}` ended while its header was read")
    return text


def _parse_header(
    text: bytes, path: Path, status: os.stat_result, keeps_last: bool = False
) -> SafetensorsFile:
    if not text.startswith(b"{"):
        raise InklingError(f"the header of `{path}` does not begin with an opening brace")
    header = _parse_object(text, f"the header of `{path}`", keeps_last)
    metadata = _parse_metadata(header.pop("__metadata__", {}), path)
    data_start = 8 + len(text)
    tensors = {
        name: _parse_tensor(name, header.pop(name), data_start, path) for name in list(header)
    }
    _require_tiled(tensors.values(), data_start, status.st_size, path)
    return SafetensorsFile(path, tensors, metadata, status.st_size, status.st_mtime_ns)


def _parse_object(data: bytes, where: str, keeps_last: bool) -> dict[str, Any]:
    try:
        text = decode_json(data, where)
        parse_int = _whole if "-0" in text else None
        return parse_json_object(text, parse_int, keeps_last=keeps_last, compact=_Compact().compact)
    except UnicodeDecodeError as error:
        raise InklingError(f"{where} is not UTF-8: {error.reason}") from error
    except RecursionError as error:
        raise InklingError(f"{where} is nested too deeply") from error
    except ValueError as error:
        raise InklingError(f"{where} is not valid JSON: {explain(error)}") from error


_Entry: TypeAlias = tuple[str, tuple[int, ...], int, int]
"""Dtype, shape, and where the bytes begin and end."""


class _Compact:
    """Keeps the sound entries of a large header small while it is read: half its peak in memory.

    Entries of one dtype and shape share both.
    """

    def __init__(self) -> None:
        self._forms: dict[tuple[str, tuple[int, ...]], tuple[str, tuple[int, ...]]] = {}

    def compact(self, entry: dict[str, Any]) -> dict[str, Any] | _Entry:
        """Return an entry that `_fault_of` finds nothing wrong with in its small form."""
        if _fault_of(entry) is not None:
            return entry
        form = (entry["dtype"], tuple(entry["shape"]))
        return (*self._forms.setdefault(form, form), *entry["data_offsets"])


def _whole(text: str) -> int:
    """Return a whole number; to the safetensors library, -0 is none."""
    if text == "-0":
        raise ValueError("`-0` is not a size")
    return int(text)


def _parse_metadata(entry: object, path: Path) -> dict[str, str]:
    if not isinstance(entry, dict) or not all(isinstance(v, str) for v in entry.values()):
        raise InklingError(f"`__metadata__` of `{path}` is not an object of strings")
    return entry


def _parse_tensor(name: str, entry: Any, data_start: int, path: Path) -> TensorInfo:
    if len(name) > MAX_NAME_LENGTH:
        fault: str | None = (
            f"has a name of {len(name)} characters, expected at most {MAX_NAME_LENGTH}"
        )
    else:
        fault = None if isinstance(entry, tuple) else _fault_of(entry)
    if fault is not None:
        raise InklingError(f"tensor `{shown_text(name)}` of `{path}` {fault}")
    dtype, shape, start, end = entry
    return TensorInfo(name, dtype, shape, data_start + start, data_start + end)


def _fault_of(entry: object) -> str | None:
    """Return what is wrong with a tensor's entry, or None."""
    if not isinstance(entry, dict) or entry.keys() != _KEYS:
        return "is not an object of dtype, shape and data_offsets"
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        return f"has the unknown dtype `{_shown_dtype(dtype)}`"
    if not _are_sizes(shape):
        return f"has the shape {shown_value(shape)}, expected a list of sizes"
    if len(shape) > MAX_DIMENSIONS:
        return f"has {len(shape)} dimensions, expected at most {MAX_DIMENSIONS}"
    if not _are_sizes(offsets) or len(offsets) != 2:
        return f"has the offsets {shown_value(offsets)}, expected two sizes"
    return _fault_of_span(dtype, shape, offsets[1] - offsets[0])


_KEYS = {"dtype", "shape", "data_offsets"}


def _are_sizes(values: object) -> bool:
    """Whether it is a list of whole numbers that are not negative; true is not one."""
    if not isinstance(values, list):
        return False
    for value in values:  # noqa: SIM110
        if type(value) is not int or value < 0:
            return False
    return True


def _shown_dtype(dtype: object) -> str:
    return shown_text(dtype) if isinstance(dtype, str) else shown_value(dtype)


def _fault_of_span(dtype: str, shape: list[int], span: int) -> str | None:
    """Return how the bytes of a tensor contradict its shape, or None.

    A size of 0 hides no overflow: readers multiply the others too.
    """
    bits = prod(shape) * DTYPE_BITS[dtype]
    bound = bits or prod(filter(None, shape)) * DTYPE_BITS[dtype]
    if bound >= 2**63:
        return f"has a shape whose size overflows: {shown_value(shape)}"
    if bits != 8 * span:
        return f"spans {shown_value(span)} bytes, {dtype} of shape {shape} needs {bits / 8:g}"
    return None


def _require_tiled(
    tensors: Iterable[TensorInfo], data_start: int, file_size: int, path: Path
) -> None:
    """Require that the tensors cover the data exactly once."""
    position = data_start
    for tensor in sorted(tensors, key=attrgetter("start", "end")):
        if tensor.start < position:
            raise InklingError(
                f"tensor `{shown_text(tensor.name)}` of `{path}` overlaps another tensor"
            )
        if tensor.start > position:
            gap = tensor.start - position
            raise InklingError(
                f"`{path}` has {gap} bytes before `{shown_text(tensor.name)}` in no tensor"
            )
        position = tensor.end
    if position > file_size:
        raise InklingError(
            f"`{path}` has {file_size} bytes, its header describes {position}",
            "the file was cut; fetch it again",
        )
    if position < file_size:
        raise InklingError(f"`{path}` has {file_size - position} bytes after its last tensor")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor to be written: name, dtype and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return DTYPE_BITS[self.dtype] * prod(self.shape) // 8


def sort_for_file(specs: Iterable[TensorSpec]) -> list[TensorSpec]:
    """Return the specs in the order in which the safetensors library itself writes them."""
    return sorted(specs, key=lambda spec: (-_DTYPE_ORDER[spec.dtype], spec.name))


def format_header(specs: Iterable[TensorSpec], metadata: Mapping[str, str]) -> bytes:
    """Return length prefix and header for tensors that follow one another in this order.

    Byte for byte what the safetensors library writes, padding included.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    position = 0
    for spec in specs:
        end = position + spec.nbytes
        header[spec.name] = {
            "dtype": spec.dtype,
            "shape": list(spec.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text
