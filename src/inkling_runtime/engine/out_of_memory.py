"""Which exceptions mean that a step found no memory, so that a smaller one may go on."""

import torch

_MESSAGES = ("can't allocate memory", "not enough memory", "out of memory")
"""What allocators that raise a plain `RuntimeError` say."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that memory could not be had."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return type(error) is RuntimeError and any(text in str(error) for text in _MESSAGES)
