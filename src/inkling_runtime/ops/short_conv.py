"""Short convolution: depthwise, causal, with its own residual and a state between steps.

Four per layer: on k, on v, on the attention output and on the MLP output. There is no
activation, and the convolution's own residual is part of the op, not of its caller. The two on
branch outputs also add the branch's residual stream.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from inkling_runtime.ops.backend import Backend, backend_for
from inkling_runtime.ops.conv_plan import ConvPlan
from inkling_runtime.ops.lora_expand import expand_pending, expand_pending_reference
from inkling_runtime.ops.native import arguments
from inkling_runtime.ops.pending_delta import PendingDelta


def short_conv(
    x: Tensor,
    weight: Tensor,
    state: Tensor,
    plan: ConvPlan,
    *,
    residual: Tensor | None = None,
    pending: Sequence[PendingDelta] = (),
) -> Tensor:
    """Return the convolution of every sequence and move its state forward, in place.

    Semantics::

        x'   = x + pending deltas                             rounded to the dtype of x
        y[t] = residual[t] + (x'[t] + Σ_j weight[j] · x'[t - (W-1) + j])      j = 0 … W-1

    within a sequence; inputs before the first token of this step come from the sequence's state.
    States are the last W-1 inputs x' before a point (`ConvPlan`). A new sequence has zeros. The
    convolution is rounded to the dtype of x before the residual is added.

    Args:
        x: [T, C]; may be overwritten where there are pending deltas.
        weight: [W, C] fp32, the tap of the current token last.
        state: [slots, W-1, C] in the dtype of x, oldest input first.
        plan: whose states are read and written.
        residual: [T, C]; None: nothing is added.
        pending: LoRA deltas of x that are still to be added.

    Returns:
        [T, C] in the dtype of x; weights and sum are fp32.
    """
    backend = backend_for(x)
    if backend is Backend.TRITON:
        return _triton(x, weight, state, plan, residual, pending)
    for delta in pending:
        x = expand_pending(x, delta)
    if backend is Backend.NATIVE and _is_readable(x, weight, state):
        return _native(x, weight, state, plan, residual)
    if plan.segments.is_decode:
        y = _decode_torch(x, weight, state, plan)
    else:
        y = _prefill_torch(x, weight, state, plan)
    return y if residual is None else y.add_(residual)


def _triton(
    x: Tensor,
    weight: Tensor,
    state: Tensor,
    plan: ConvPlan,
    residual: Tensor | None,
    pending: Sequence[PendingDelta],
) -> Tensor:
    from inkling_runtime.ops.kernels import short_conv as kernels

    inlined = []
    for delta in pending:
        if all((part.start, part.stop) == (0, x.shape[1]) for part in delta.parts):
            inlined.append(delta)
        else:
            x = expand_pending(x, delta)
    return kernels.convolve(x, weight, state, plan, residual, inlined)


def _decode_torch(x: Tensor, weight: Tensor, state: Tensor, plan: ConvPlan) -> Tensor:
    window = torch.cat([state[plan.read_slots], x[:, None]], dim=1)
    state[plan.write_slots] = window[plan.write_sequences, 1:]
    return (window * weight).sum(1).add_(x).to(x.dtype)


def _prefill_torch(x: Tensor, weight: Tensor, state: Tensor, plan: ConvPlan) -> Tensor:
    taps, tails = plan.rows(weight.shape[0])
    inputs = torch.cat([state[plan.read_slots].flatten(0, 1), x])
    state[plan.write_slots] = inputs[tails]
    y = x.to(torch.float32, copy=True)
    for tap, rows in zip(weight, taps, strict=True):
        y.addcmul_(inputs[rows].float(), tap)
    return y.to(x.dtype)


def _is_readable(x: Tensor, weight: Tensor, state: Tensor) -> bool:
    """Return whether the compiled kernel reads these; the state it must find in place."""
    return (
        arguments.has_kernels(x.dtype)
        and state.dtype == x.dtype
        and state.is_contiguous()
        and weight.is_contiguous()
    )


def _native(
    x: Tensor, weight: Tensor, state: Tensor, plan: ConvPlan, residual: Tensor | None
) -> Tensor:
    x, y = arguments.rows(x), torch.empty(x.shape, dtype=x.dtype)
    residual = None if residual is None else residual.contiguous()
    arguments.kernel("short_conv", x.dtype)(
        x.data_ptr(),
        x.stride(0),
        weight.data_ptr(),
        state.data_ptr(),
        *plan.addresses,
        weight.shape[1],
        weight.shape[0],
        None if residual is None else residual.data_ptr(),
        y.data_ptr(),
        torch.get_num_threads(),
    )
    return y


def short_conv_reference(
    x: Tensor,
    weight: Tensor,
    state: Tensor,
    plan: ConvPlan,
    *,
    residual: Tensor | None = None,
    pending: Sequence[PendingDelta] = (),
) -> Tensor:
    """Specify `short_conv`, one token after the other."""
    for delta in pending:
        x = expand_pending_reference(x, delta)
    y, written = torch.empty_like(x), {}
    ends = list(zip(plan.write_sequences.tolist(), plan.write_ends.tolist(), strict=True))
    for sequence, rows in enumerate(plan.segments.slices()):
        history = state[plan.read_slots[sequence]]
        for t in range(rows.start, rows.stop):
            window = torch.cat([history, x[t : t + 1]]).float()
            y[t] = (x[t].float() + (window * weight.float()).sum(0)).to(x.dtype)
            history = window[1:].to(state.dtype)
            written[sequence, t + 1 - rows.start] = history
    for slot, end in zip(plan.write_slots.tolist(), ends, strict=True):
        state[slot] = written[end]
    return y if residual is None else y + residual
