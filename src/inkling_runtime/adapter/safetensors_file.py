"""Read and write safetensors files by header and byte range.

Not a tensor library: nothing here knows what a number is. The header is checked completely
(length, UTF-8, JSON, duplicate keys, dtypes, shapes, offsets, gaps and overlaps) before anything
of the size that it claims is allocated, because adapter files come from strangers.
"""

import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from inkling_runtime.adapter.json_file import parse_json_object, read_json_object
from inkling_runtime.adapter.regular_file import open_regular
from inkling_runtime.errors import InklingError, format_names

MAX_HEADER_BYTES = 100_000_000
"""The limit that the safetensors library itself sets."""

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


def read_header(path: Path) -> SafetensorsFile:
    """Return the header of a safetensors file.

    Raises:
        InklingError: the file cannot be read, or its header is not exactly what the format says.
    """
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            text = _read_header_bytes(file, path, status.st_size)
    except OSError as error:
        raise InklingError(f"`{path}` cannot be read: {error.strerror or error}") from error
    return _parse_header(text, path, status.st_size)


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
    text = file.read(length)
    if len(text) < length:
        raise InklingError(f"`{path}` ended while its header was read")
    return text


def _parse_header(text: bytes, path: Path, file_size: int) -> SafetensorsFile:
    if not text.startswith(b"{"):
        raise InklingError(f"the header of `{path}` does not begin with an opening brace")
    try:
        header = parse_json_object(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InklingError(f"the header of `{path}` is not UTF-8: {error.reason}") from error
    except RecursionError as error:
        raise InklingError(f"the header of `{path}` is nested too deeply") from error
    except ValueError as error:
        raise InklingError(f"the header of `{path}` is not valid JSON: {error}") from error
    metadata = _parse_metadata(header.pop("__metadata__", {}), path)
    data_start = 8 + len(text)
    tensors = {name: _parse_tensor(name, entry, data_start, path) for name, entry in header.items()}
    _require_tiled(tensors.values(), data_start, file_size, path)
    return SafetensorsFile(path, tensors, metadata, file_size)


def _parse_metadata(entry: object, path: Path) -> dict[str, str]:
    if not isinstance(entry, dict) or not all(isinstance(v, str) for v in entry.values()):
        raise InklingError(f"`__metadata__` of `{path}` is not an object of strings")
    return entry


def _is_size(value: object) -> bool:
    return type(value) is int and value >= 0


def _parse_tensor(name: str, entry: object, data_start: int, path: Path) -> TensorInfo:
    where = f"tensor `{name}` of `{path}`"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise InklingError(f"{where} is not an object of dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise InklingError(f"{where} has the unknown dtype `{dtype}`")
    if not isinstance(shape, list) or not all(map(_is_size, shape)):
        raise InklingError(f"{where} has the shape {_shorten(shape)}, expected a list of sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise InklingError(f"{where} has the offsets {_shorten(offsets)}, expected two sizes")
    bits = _bits(dtype, shape)
    if bits is None:
        raise InklingError(f"{where} has a shape whose size overflows: {_shorten(shape)}")
    start, end = offsets
    if bits % 8 or end - start != bits // 8:
        raise InklingError(
            f"{where} spans {_shorten(end - start)} bytes, "
            f"{dtype} of shape {shape} needs {bits / 8:g}"
        )
    return TensorInfo(name, dtype, tuple(shape), data_start + start, data_start + end)


def _bits(dtype: str, shape: list[int]) -> int | None:
    """Return the size in bits, or None if it does not fit 64 bits."""
    if 0 in shape:
        return 0
    bits = DTYPE_BITS[dtype]
    for size in shape:
        bits *= size
        if bits >= 2**63:
            return None
    return bits


def _shorten(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "…"


def _require_tiled(
    tensors: Iterable[TensorInfo], data_start: int, file_size: int, path: Path
) -> None:
    """Require that the tensors cover the data exactly once."""
    position = data_start
    for tensor in sorted(tensors, key=lambda info: (info.start, info.end)):
        if tensor.start < position:
            raise InklingError(f"tensor `{tensor.name}` of `{path}` overlaps another tensor")
        if tensor.start > position:
            gap = tensor.start - position
            raise InklingError(f"`{path}` has {gap} bytes before `{tensor.name}` in no tensor")
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


def iter_weight_files(folder: Path) -> Iterator[Path]:
    """Yield the safetensors files of a checkpoint folder, those of its index if it has one.

    Raises:
        InklingError: the index is not readable or names a file that is not there.
    """
    index = folder / "model.safetensors.index.json"
    if index.exists():
        weight_map = read_json_object(index).get("weight_map")
        if not isinstance(weight_map, dict):
            raise InklingError(f"`{index}` has no `weight_map` object")
        names = sorted({str(name) for name in weight_map.values()})
        outside = [name for name in names if Path(name).name != name]
        if outside:
            raise InklingError(f"`{index}` names files outside its folder: {format_names(outside)}")
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise InklingError(f"`{index}` names files that are not there: {format_names(missing)}")
        yield from (folder / name for name in names)
        return
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InklingError(f"`{folder}` holds no `.safetensors` file")
    yield from files
