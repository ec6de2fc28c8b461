"""Statistics of a run of elements, on their bits: no number is converted.

A float's magnitude grows with its bits once the sign is cleared, and NaN and Inf are what lies at
or above the bits of infinity. So one mask and one maximum tell that all is finite and how large;
only a run that is not finite is counted.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from inkling_runtime.adapter.factors import to_float32
from inkling_runtime.adapter.rounding import RawArray, typed
from inkling_runtime.adapter.safetensors_file import DTYPE_BITS
from inkling_runtime.adapter.values.adapter_values import TensorValues

_INFINITY = {"BF16": 0x7F80, "F16": 0x7C00, "F32": 0x7F80_0000, "F64": 0x7FF0_0000_0000_0000}
"""The bits of +∞."""

_BLOCK = 1 << 16
"""Elements that are masked at once, so that the scratch stays in the cache."""

_PROBE = 256
"""Elements that are looked at first where most runs are decided by a few."""


@dataclass(frozen=True, slots=True)
class RunValues:
    """What a run of elements is. `largest` is bits; `constant` the bits that all share."""

    num_nan: int
    num_inf: int
    largest: int
    constant: int | None
    is_exactly_bf16: bool

    @property
    def is_finite(self) -> bool:
        """Whether all elements are numbers."""
        return self.num_nan + self.num_inf == 0


def measure_run(raw: RawArray, dtype: str) -> RunValues:
    """Return what a run of one or more elements is.

    Args:
        raw: one-dimensional unsigned integers of the element's width.
        dtype: a float dtype that adapters may have.
    """
    infinity = _INFINITY[dtype]
    num_nan, num_inf, largest = 0, 0, 0
    for start in range(0, raw.size, _BLOCK):
        magnitude = _magnitudes(raw[start : start + _BLOCK])
        peak = int(magnitude.max())
        if peak >= infinity:
            num_nan += int((magnitude > infinity).sum())
            num_inf += int((magnitude == infinity).sum())
            peak = int(magnitude.max(initial=0, where=magnitude < infinity))
        largest = max(largest, peak)
    return RunValues(num_nan, num_inf, largest, _constant(raw), _is_exactly_bf16(raw, dtype))


def join_runs(runs: Iterable[RunValues], dtype: str, num_elements: int) -> TensorValues:
    """Return what a tensor is from its runs."""
    runs = list(runs)
    largest = max((run.largest for run in runs), default=0)
    constants = {run.constant for run in runs}
    return TensorValues(
        dtype,
        num_elements,
        sum(run.num_nan for run in runs),
        sum(run.num_inf for run in runs),
        magnitude_of(largest, dtype),
        num_elements > 1 and len(constants) == 1 and None not in constants,
        dtype == "F32" and all(run.is_exactly_bf16 for run in runs),
    )


def magnitude_of(bits: int, dtype: str) -> float:
    """Return the number that bits without a sign mean."""
    raw = np.array([bits], f"u{DTYPE_BITS[dtype] // 8}")
    return float(to_float32(raw, dtype)[0] if dtype == "BF16" else typed(raw, dtype)[0])


def _magnitudes(raw: RawArray) -> RawArray:
    """Return elements without their signs."""
    magnitudes: RawArray = raw & raw.dtype.type((1 << (8 * raw.itemsize - 1)) - 1)
    return magnitudes


def _constant(raw: RawArray) -> int | None:
    first = raw[0]
    if (raw[:_PROBE] != first).any() or (raw != first).any():
        return None
    return int(first)


def _is_exactly_bf16(raw: RawArray, dtype: str) -> bool:
    if dtype != "F32":
        return False
    low = np.uint32(0xFFFF)
    return not (raw[:_PROBE] & low).any() and not (raw & low).any()
