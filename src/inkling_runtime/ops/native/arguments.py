"""What the ops pass to the kernels: numbers and addresses, kept short because decode is.

An address says nothing about what lies there. So whoever calls a kernel looks at dtypes and
strides first, and takes torch's way where they are not what the kernel reads.
"""

from array import array
from collections.abc import Callable, Iterable
from functools import cache

import torch
from torch import Tensor

from inkling_runtime.ops.lora_slots import LoraSlots
from inkling_runtime.ops.native import library

_DTYPE_NAMES = {torch.float32: "f32", torch.bfloat16: "bf16"}


@cache
def kernel(name: str, dtype: torch.dtype) -> Callable[..., None]:
    """Return a kernel by the name and dtype of `signatures.py`; the library never changes."""
    function: Callable[..., None] = getattr(library.kernels(), f"{name}_{_DTYPE_NAMES[dtype]}")
    return function


def has_kernels(dtype: torch.dtype) -> bool:
    """Return whether there are kernels of a dtype."""
    return dtype in _DTYPE_NAMES


def rows(x: Tensor) -> Tensor:
    """Return x, or a copy of it whose rows are without gaps inside."""
    return x if x.stride(-1) == 1 else x.contiguous()


def address(numbers: "array[int]") -> int:
    """Return where the numbers are, which holds as long as they are kept."""
    return numbers.buffer_info()[0]


def are_readable(slots: Iterable[LoraSlots | None], dtype: torch.dtype) -> bool:
    """Return whether the factors of all sites have the dtype that a kernel reads."""
    return all(s is None or s.dtype is None or s.dtype == dtype for s in slots)
