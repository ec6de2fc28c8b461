"""Root mean square normalisation of rows, with or without a residual that is added first."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_runtime.ops.kernels.launch import launch


@triton.jit
def norm_scale(x, size, eps):
    """Return rsqrt(mean(x²) + eps) of each row, [rows, 1]; what is outside of a row must be 0."""
    return tl.rsqrt(tl.sum(x * x, axis=1) / size + eps)[:, None]


@triton.jit
def rms_norm_kernel(
    y, total, x, residual, weight, eps, size, HAS_RESIDUAL: tl.constexpr, BLOCK: tl.constexpr
):
    """Grid (rows)."""
    lanes = tl.arange(0, BLOCK)[None, :]
    mask = lanes < size
    row = tl.program_id(0).to(tl.int64) * size
    values = tl.load(x + row + lanes, mask=mask, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        values += tl.load(residual + row + lanes, mask=mask, other=0.0).to(tl.float32)
        values = values.to(x.dtype.element_ty)
        tl.store(total + row + lanes, values, mask=mask)
        values = values.to(tl.float32)
    factor = tl.load(weight + lanes, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + row + lanes, factor * values * norm_scale(values, size, eps), mask=mask)


def rms_norm(
    x: Tensor, residual: Tensor | None, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Return the norm and what was normed."""
    x, size = x.contiguous(), x.shape[-1]
    y, total = torch.empty_like(x), x
    if residual is not None:
        residual, total = residual.contiguous(), torch.empty_like(x)
    launch(
        rms_norm_kernel,
        (x.numel() // size,),
        y,
        total,
        x,
        residual,
        weight,
        eps,
        size,
        HAS_RESIDUAL=residual is not None,
        BLOCK=triton.next_power_of_2(size),
        num_warps=8 if size > 2048 else 4,
    )
    return y, total


def _real_norm(has_residual: bool) -> None:
    x = torch.empty(8, 6144, dtype=torch.bfloat16)
    weight = torch.empty(6144, dtype=torch.bfloat16)
    rms_norm(x, torch.empty_like(x) if has_residual else None, weight, 1e-6)


VARIANTS = {
    "hidden": lambda: _real_norm(False),
    "hidden, residual": lambda: _real_norm(True),
}
