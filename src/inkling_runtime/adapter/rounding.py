"""Stored elements as numbers and back, rounded once to nearest even.

Elements are unsigned integers of their width until they must be numbers: numpy has no bf16.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from inkling_runtime.adapter.factors import to_float32
from inkling_runtime.errors import InklingError, format_count

RawArray: TypeAlias = NDArray[Any]
Numbers: TypeAlias = NDArray[np.float32] | NDArray[np.float64]

FLOATS = {"F16": np.float16, "F32": np.float32, "F64": np.float64}
"""The dtypes that numpy has; BF16 is the other one that can be computed with."""


def typed(array: RawArray, dtype: str) -> RawArray:
    """Return raw elements as their numpy float type; BF16, which numpy lacks, stays uint16."""
    return array.view(FLOATS[dtype]) if dtype in FLOATS else array


def require_float(dtype: str) -> None:
    """Require a dtype whose elements are numbers to compute with.

    Raises:
        InklingError: it is an integer, or a float of fewer than 16 bits.
    """
    if dtype not in FLOATS and dtype != "BF16":
        raise InklingError(f"elements of dtype {dtype} cannot be computed with")


def widen(raw: RawArray, dtype: str, wide: str) -> Numbers:
    """Return raw elements as numbers of F32 or F64, exactly unless F64 must become F32.

    Raises:
        InklingError: the dtype is not a float of 16 bits or more.
    """
    require_float(dtype)
    if not raw.flags.c_contiguous:
        raw = np.ascontiguousarray(raw)
    with np.errstate(over="ignore", invalid="ignore"):
        if wide == "F64":
            numbers = to_float32(raw, dtype) if dtype == "BF16" else typed(raw, dtype)
            return numbers.astype(np.float64)
        return to_float32(typed(raw, dtype), dtype)


def narrow(numbers: Numbers, dtype: str) -> RawArray:
    """Return numbers as raw elements of a dtype, rounded once to nearest even; NaN stays NaN.

    Raises:
        InklingError: a finite number is beyond what the dtype holds.
    """
    if dtype == "BF16" and numbers.dtype == np.float32 and _are_below(numbers, _ORDINARY):
        return _round_ordinary(numbers)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if dtype == "BF16":
            raw = round_to_bf16(numbers)
            lost = ((raw & 0x7FFF) == 0x7F80) & np.isfinite(numbers)
        else:
            rounded = numbers.astype(FLOATS[dtype])
            raw = rounded.view(f"u{rounded.itemsize}")
            lost = np.isinf(rounded) & np.isfinite(numbers)
    if lost.any():
        count, most = int(np.count_nonzero(lost)), float(np.abs(numbers[lost]).max())
        raise InklingError(
            f"{format_count(count, 'element')} {'is' if count == 1 else 'are'} beyond what {dtype} "
            f"holds, the largest is {most:g}"
        )
    return raw


def round_to_bf16(numbers: Numbers) -> NDArray[np.uint16]:
    """Return numbers as bf16 bits, rounded once to nearest even; NaN stays NaN.

    From float64 through float32 by round-to-odd, so that the second rounding sees no false tie.
    """
    bits = numbers.astype(np.float32).view(np.uint32)
    if numbers.dtype == np.float64:
        single = bits.view(np.float32).astype(np.float64)
        away = np.abs(single) > np.abs(numbers)
        exact = (single == numbers) | np.isnan(numbers)
        bits = np.where(exact, bits, (bits - away) | np.uint32(1))
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(numbers), np.uint32(0x7FC0), rounded).astype(np.uint16)


_ORDINARY = 3e38
"""Numbers below it are finite in BF16, too."""


def _are_below(numbers: Numbers, bound: float) -> bool:
    """Whether all magnitudes are below a bound; NaN is not."""
    return bool(numbers.size and numbers.max() < bound and numbers.min() > -bound)


def _round_ordinary(numbers: Numbers) -> NDArray[np.uint16]:
    """Return what `round_to_bf16` does of float32 without NaN, in a quarter of the time."""
    bits = numbers.view(np.uint32)
    rounded = bits >> np.uint32(16)
    rounded &= np.uint32(1)
    rounded += bits
    rounded += np.uint32(0x7FFF)
    rounded >>= np.uint32(16)
    return rounded.astype(np.uint16)
