"""Root mean square normalisation, alone or after adding a residual."""

import torch
from torch import Tensor
from torch.nn import functional

from inkling_runtime.ops.backend import Backend, backend_for
from inkling_runtime.ops.native import arguments


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return x normalised over its last dimension.

    Semantics::

        y = weight · x · rsqrt(mean(x²) + eps)

    Args:
        x: [..., H].
        weight: [H].
        eps: added to the mean of squares.

    Returns:
        [..., H] in the dtype of x; the inside is fp32.
    """
    backend = backend_for(x)
    if backend is Backend.TRITON:
        return _triton(x, None, weight, eps)[0]
    if backend is Backend.NATIVE and _is_readable(x, weight):
        return _native(x, None, weight, eps)[0]
    return functional.rms_norm(x, weight.shape, weight, eps)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the normalised sum and the sum itself, which is the next residual.

    Semantics::

        sum = x + residual
        y   = weight · sum · rsqrt(mean(sum²) + eps)

    Args:
        x: [..., H], the output of a branch.
        residual: [..., H], what the branch was computed from.
        weight: [H].
        eps: added to the mean of squares.

    Returns:
        (y, sum), both [..., H] in the dtype of x.
    """
    backend = backend_for(x)
    if backend is Backend.TRITON:
        return _triton(x, residual, weight, eps)
    if backend is Backend.NATIVE and _is_readable(x, weight):
        return _native(x, residual, weight, eps)
    total = x + residual
    return functional.rms_norm(total, weight.shape, weight, eps), total


def _triton(
    x: Tensor, residual: Tensor | None, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Return the norm and what was normed."""
    from inkling_runtime.ops.kernels import rms_norm as kernels

    return kernels.rms_norm(x, residual, weight, eps)


def _is_readable(x: Tensor, weight: Tensor) -> bool:
    """Return whether the compiled kernel reads these."""
    dtype = x.dtype
    return arguments.has_kernels(dtype) and weight.dtype == dtype and weight.is_contiguous()


def _native(
    x: Tensor, residual: Tensor | None, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Return the norm and what was normed."""
    x = x.contiguous()
    y, total = torch.empty_like(x), x
    if residual is not None:
        residual, total = residual.contiguous(), torch.empty_like(x)
    size = x.shape[-1]
    arguments.kernel("rms_norm", x.dtype)(
        x.data_ptr(),
        None if residual is None else residual.data_ptr(),
        weight.data_ptr(),
        y.data_ptr(),
        total.data_ptr(),
        x.numel() // size,
        size,
        eps,
        torch.get_num_threads(),
    )
    return y, total


def rms_norm_reference(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Specify `rms_norm`."""
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (weight.float() * wide * scale).to(x.dtype)


def add_rms_norm_reference(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Specify `add_rms_norm`."""
    total = x + residual
    return rms_norm_reference(total, weight, eps), total
