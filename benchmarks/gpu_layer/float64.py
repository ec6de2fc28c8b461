"""The references of the ops in float64: they compute in what `Tensor.float` gives them.

Where one adds up in a new tensor this stays fp32, which rounds once per sum.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor


@contextmanager
def float64() -> Iterator[None]:
    """Let `Tensor.float` give float64 meanwhile."""
    single = Tensor.float
    Tensor.float = Tensor.double
    try:
        yield
    finally:
        Tensor.float = single
