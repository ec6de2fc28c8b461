"""Short convolution: depthwise, causal, with its own residual and a state between steps.

Four per layer: on k, on v, on the attention output and on the MLP output. There is no
activation, and the residual is part of the op, not of its caller.
"""

import torch
from torch import Tensor

from inkling_runtime.ops.segments import Segments


def short_conv(
    x: Tensor, weight: Tensor, state: Tensor, state_slots: Tensor, segments: Segments
) -> Tensor:
    """Return the convolution of every sequence and move its state forward, in place.

    Semantics::

        y[t] = x[t] + Σ_j weight[j] · x[t - (W-1) + j]        j = 0 … W-1

    within a sequence; inputs before the first token of this step come from the sequence's state,
    which afterwards holds the last W-1 inputs. A new sequence has a state of zeros.

    Args:
        x: [T, C].
        weight: [W, C] fp32, the tap of the current token last.
        state: [slots, W-1, C] in the dtype of x, oldest input first.
        state_slots: [B] int64, the slot of each sequence.
        segments: which tokens belong to which sequence.

    Returns:
        [T, C] in the dtype of x; weights and sum are fp32.
    """
    if segments.is_decode:
        return _decode_torch(x, weight, state, state_slots)
    return _prefill_torch(x, weight, state, state_slots, segments)


def _decode_torch(x: Tensor, weight: Tensor, state: Tensor, state_slots: Tensor) -> Tensor:
    window = torch.cat([state[state_slots], x[:, None]], dim=1)
    state[state_slots] = window[:, 1:]
    return (window * weight).sum(1).add_(x).to(x.dtype)


def _prefill_torch(
    x: Tensor, weight: Tensor, state: Tensor, state_slots: Tensor, segments: Segments
) -> Tensor:
    taps, tails = segments.history_rows(weight.shape[0])
    inputs = torch.cat([state[state_slots].flatten(0, 1), x])
    state[state_slots] = inputs[tails]
    y = x.to(torch.float32, copy=True)
    for tap, rows in zip(weight, taps, strict=True):
        y.addcmul_(inputs[rows].float(), tap)
    return y.to(x.dtype)


def short_conv_reference(
    x: Tensor, weight: Tensor, state: Tensor, state_slots: Tensor, segments: Segments
) -> Tensor:
    """Specify `short_conv`, one token after the other."""
    y = torch.empty_like(x)
    for slot, rows in zip(state_slots.tolist(), segments.slices(), strict=True):
        for t in range(rows.start, rows.stop):
            window = torch.cat([state[slot], x[t : t + 1]]).float()
            y[t] = (x[t].float() + (window * weight.float()).sum(0)).to(x.dtype)
            state[slot] = window[1:].to(state.dtype)
    return y
