"""Tensors to be written, as data: name, dtype, shape, and the lazy array of their elements.

Also which of them are nothing but runs of stored bytes, one after another: those are copied without
being looked at.
"""

from dataclasses import dataclass
from math import prod

from inkling_runtime.adapter.moves import Array, Join, Read, Reshape, Slice, nbytes_of
from inkling_runtime.adapter.safetensors_file import DTYPE_BITS, TensorSpec


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor to be written and where its elements come from."""

    spec: TensorSpec
    array: Array


@dataclass(frozen=True, slots=True)
class Run:
    """Bytes of a stored tensor, `start` counted from its first."""

    read: Read
    start: int
    size: int


def copied_runs(array: Array) -> tuple[Run, ...] | None:
    """Return the runs of stored bytes that an array is, None where bytes must be moved."""
    if isinstance(array, Read):
        return (Run(array, 0, array.tensor.nbytes),)
    if isinstance(array, Reshape):
        return copied_runs(array.source)
    if isinstance(array, Slice):
        return _runs_of_slice(array)
    if isinstance(array, Join) and prod(array.shape[: array.axis]) == 1:
        found = [copied_runs(source) for source in array.sources]
        return tuple(run for runs in found for run in runs or ()) if all(found) else None
    return None


def _runs_of_slice(array: Slice) -> tuple[Run, ...] | None:
    runs = copied_runs(array.source)
    shape = array.source.shape
    if runs is None or len(runs) != 1 or array.step != 1 or prod(shape[: array.axis]) != 1:
        return None
    before = array.start * prod(shape[array.axis + 1 :]) * DTYPE_BITS[array.dtype] // 8
    return (Run(runs[0].read, runs[0].start + before, nbytes_of(array)),)


def copied_tensor(array: Array) -> Read | None:
    """Return the stored tensor whose bytes an array is, all of them; None where it is not one."""
    runs = copied_runs(array)
    if runs is None or len(runs) != 1 or runs[0].size != runs[0].read.tensor.nbytes:
        return None
    return runs[0].read
