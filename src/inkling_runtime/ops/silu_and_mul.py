"""The gated activation of every MLP: gate and up come side by side in one tensor."""

from torch import Tensor
from torch.nn import functional


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """Return the activation of a gated MLP.

    Semantics::

        y = silu(gate_up[..., :F]) · gate_up[..., F:]

    Args:
        gate_up: [..., 2F], the gate in the first half (contiguous, not interleaved).

    Returns:
        [..., F] in the dtype of gate_up.
    """
    width = gate_up.shape[-1] // 2
    return functional.silu(gate_up[..., :width]).mul_(gate_up[..., width:])


def silu_and_mul_reference(gate_up: Tensor) -> Tensor:
    """Specify `silu_and_mul`."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (gate / (1 + (-gate).exp()) * up).to(gate_up.dtype)
