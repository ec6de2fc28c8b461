"""The gated activation of every MLP: gate and up come side by side in one tensor."""

from torch import Tensor
from torch.nn import functional

from inkling_runtime.ops.backend import Backend, backend_for
from inkling_runtime.ops.lora_expand import expand_pending
from inkling_runtime.ops.lora_shrink import Shrunk
from inkling_runtime.ops.lora_slots import LoraSlots
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.token_adapters import TokenAdapters


def silu_and_mul(gate_up: Tensor, scale: float = 1.0) -> Tensor:
    """Return the activation of a gated MLP.

    Semantics::

        y = scale · silu(gate_up[..., :F]) · gate_up[..., F:]

    Args:
        gate_up: [..., 2F], the gate in the first half (contiguous, not interleaved).
        scale: multiplies the product.

    Returns:
        [..., F] in the dtype of gate_up.
    """
    if backend_for(gate_up) is Backend.TRITON:
        rows = gate_up.reshape(-1, gate_up.shape[-1])
        hidden, _ = _triton(rows, scale, None, None, None)
        return hidden.view(*gate_up.shape[:-1], hidden.shape[1])
    width = gate_up.shape[-1] // 2
    hidden = functional.silu(gate_up[..., :width]).mul_(gate_up[..., width:])
    return hidden if scale == 1.0 else hidden.mul_(scale)


def silu_and_mul_deferred(
    gate_up: Tensor,
    scale: float,
    pending: PendingDelta | None,
    down: LoraSlots | None,
    adapters: TokenAdapters,
) -> tuple[Tensor, Shrunk | None]:
    """Return the activation between two linear maps whose LoRA products are taken apart.

    Semantics::

        y      = silu_and_mul(gate_up + pending deltas, scale)
        shrunk = lora_shrink(y, [down])

    Args:
        gate_up: [T, 2F]; may be overwritten.
        scale: multiplies the product.
        pending: deltas of gate and up that are still to be added; None: none.
        down: the site of the map that reads y; None: no adapter has it.
        adapters: the adapter of each token.

    Returns:
        y [T, F], and A · y of the down site where it has been computed along with it.
    """
    if backend_for(gate_up) is not Backend.TRITON:
        return silu_and_mul(expand_pending(gate_up, pending), scale), None
    width = gate_up.shape[1] // 2
    halves = {(0, width), (width, 2 * width)}
    if pending is not None and not {(part.start, part.stop) for part in pending.parts} <= halves:
        gate_up, pending = expand_pending(gate_up, pending), None
    hidden, sums = _triton(gate_up, scale, pending, down, adapters)
    return hidden, None if sums is None else Shrunk(sums, (0,))


def _triton(
    gate_up: Tensor,
    scale: float,
    pending: PendingDelta | None,
    down: LoraSlots | None,
    adapters: TokenAdapters | None,
) -> tuple[Tensor, Tensor | None]:
    from inkling_runtime.ops.kernels import silu_and_mul as kernels

    return kernels.activate(gate_up, scale, pending, down, adapters)


def silu_and_mul_reference(gate_up: Tensor, scale: float = 1.0) -> Tensor:
    """Specify `silu_and_mul`."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (scale * gate / (1 + (-gate).exp()) * up).to(gate_up.dtype)
