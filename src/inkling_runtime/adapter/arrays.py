"""Evaluate moves with numpy: elements as unsigned integers of their width, never converted.

The only arithmetic is that of `Scale`. One tensor at a time passes through memory; the answers
about contents (identical copies, zeros) load what they are asked about once.
"""

import os
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from inkling_runtime.adapter import moves
from inkling_runtime.adapter.factors import to_float32
from inkling_runtime.adapter.moves import Array, Read
from inkling_runtime.adapter.safetensors_file import DTYPE_BITS
from inkling_runtime.adapter.site_pairs import Contents
from inkling_runtime.errors import InklingError

RawArray: TypeAlias = NDArray[Any]

_FLOATS = {"F16": np.float16, "F32": np.float32, "F64": np.float64}


def load(array: Array) -> RawArray:
    """Return the elements of a lazy array, as unsigned integers of the element's width.

    Raises:
        InklingError: the file changed or cannot be read, or `Scale` meets a dtype that is not
            a float of 16 bits or more.
    """
    return _EVALUATORS[type(array)](array)


def typed(array: RawArray, dtype: str) -> RawArray:
    """Return raw elements as their numpy float type; BF16, which numpy lacks, stays uint16."""
    return array.view(_FLOATS[dtype]) if dtype in _FLOATS else array


def is_same(first: Array, second: Array) -> bool:
    """Return whether two lazy arrays hold the same bytes."""
    if first == second:
        return True
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return False
    return bool(np.array_equal(load(first), load(second)))


def is_repeated(array: Array) -> bool:
    """Return whether all entries along the leading axis are the same bytes."""
    if array.shape[0] == 1:
        return True
    if isinstance(array, moves.Expand):
        return True
    data = load(array)
    return all(bool(np.array_equal(entry, data[0])) for entry in data[1:])


def is_zero(array: Array) -> bool:
    """Return whether every element is +0, so that `moves.Zeros` is the same bytes."""
    return isinstance(array, moves.Zeros) or not np.any(load(array))


CONTENTS = Contents(is_same, is_repeated, is_zero)
"""Answers from the bytes themselves."""


def _read(array: Array) -> RawArray:
    assert isinstance(array, Read)
    tensor = array.tensor
    unsigned = np.dtype(f"u{max(DTYPE_BITS[tensor.dtype] // 8, 1)}")
    data = np.empty(tensor.nbytes, np.uint8)
    try:
        with array.path.open("rb", buffering=0) as file:
            view, done = data.data, 0
            while done < tensor.nbytes:
                count = os.preadv(file.fileno(), [view[done:]], tensor.start + done)
                if count == 0:
                    raise InklingError(f"`{array.path}` ended inside `{tensor.name}`")
                done += count
    except OSError as error:
        raise InklingError(f"`{array.path}` cannot be read: {error.strerror or error}") from error
    return data.view(unsigned).reshape(tensor.shape)


def _zeros(array: Array) -> RawArray:
    return np.zeros(array.shape, np.dtype(f"u{DTYPE_BITS[array.dtype] // 8}"))


def _reshape(array: Array) -> RawArray:
    assert isinstance(array, moves.Reshape)
    return load(array.source).reshape(array.shape)


def _permute(array: Array) -> RawArray:
    assert isinstance(array, moves.Permute)
    return load(array.source).transpose(array.axes)


def _slice(array: Array) -> RawArray:
    assert isinstance(array, moves.Slice)
    index = [slice(None)] * len(array.source.shape)
    index[array.axis] = slice(array.start, array.stop, array.step)
    return load(array.source)[tuple(index)]


def _join(array: Array) -> RawArray:
    assert isinstance(array, moves.Join)
    return np.concatenate([load(source) for source in array.sources], axis=array.axis)


def _interleave(array: Array) -> RawArray:
    assert isinstance(array, moves.Interleave)
    first, second = load(array.first), load(array.second)
    return np.stack([first, second], axis=array.axis + 1).reshape(array.shape)


def _expand(array: Array) -> RawArray:
    assert isinstance(array, moves.Expand)
    return np.broadcast_to(load(array.source), array.shape)


def _scale(array: Array) -> RawArray:
    assert isinstance(array, moves.Scale)
    dtype = array.dtype
    if dtype not in (*_FLOATS, "BF16"):
        raise InklingError(f"elements of dtype {dtype} cannot be scaled")
    raw = load(array.source)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if dtype == "F64":
            return (raw.view(np.float64) * array.factor).view(raw.dtype)
        values = to_float32(typed(np.ascontiguousarray(raw), dtype), dtype)
        wide = values * np.float64(array.factor)
        if dtype == "BF16":
            return round_to_bf16(wide)
        scaled = wide.astype(_FLOATS[dtype])
    if np.isinf(scaled).any() and not np.isinf(values).any():
        raise InklingError(f"a factor times {array.factor:g} is beyond what {dtype} holds")
    return scaled.view(raw.dtype)


def round_to_bf16(wide: RawArray) -> NDArray[np.uint16]:
    """Return float64 values as bf16 bits, rounded once to nearest even; NaN stays NaN.

    Through float32 by round-to-odd, so that the second rounding cannot see a false tie.
    """
    single = wide.astype(np.float32)
    exact = single.astype(np.float64) == wide
    bits = single.view(np.uint32)
    away = np.abs(single.astype(np.float64)) > np.abs(wide)
    odd = np.where(exact | np.isnan(wide), bits, (bits - away) | np.uint32(1))
    rounded = (odd + np.uint32(0x7FFF) + ((odd >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(wide), np.uint32(0x7FC0), rounded).astype(np.uint16)


_EVALUATORS: dict[type, Callable[[Array], RawArray]] = {
    Read: _read,
    moves.Zeros: _zeros,
    moves.Reshape: _reshape,
    moves.Permute: _permute,
    moves.Slice: _slice,
    moves.Join: _join,
    moves.Interleave: _interleave,
    moves.Expand: _expand,
    moves.Scale: _scale,
}
