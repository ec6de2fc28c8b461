"""Which implementation of an op runs: plain torch, our compiled CPU kernels, or Triton.

The device of the input decides, not a setting: CUDA tensors go to Triton, CPU tensors to the
compiled kernels where they are enabled (`native.library`), else to torch. Every op with another
implementation than torch asks here, so that a test can hold any two against each other.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum

from torch import Tensor

from inkling_runtime.ops.native import library


class Backend(Enum):
    """An implementation of the ops."""

    TORCH = "torch"
    NATIVE = "native"
    TRITON = "triton"


_override: ContextVar[Backend | None] = ContextVar("backend", default=None)


def backend_for(x: Tensor) -> Backend:
    """Return which implementation takes a tensor."""
    override = _override.get()
    if override is not None:
        return override
    if x.is_cuda:
        return Backend.TRITON
    return Backend.NATIVE if library.is_enabled() else Backend.TORCH


@contextmanager
def use_backend(backend: Backend) -> Iterator[None]:
    """Let every op take one implementation, whatever the device."""
    token = _override.set(backend)
    try:
        yield
    finally:
        _override.reset(token)
