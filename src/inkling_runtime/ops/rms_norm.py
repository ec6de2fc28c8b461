"""Root mean square normalisation, alone or after adding a residual."""

import torch
from torch import Tensor
from torch.nn import functional


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
    total = x + residual
    return functional.rms_norm(total, weight.shape, weight, eps), total


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
