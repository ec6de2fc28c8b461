"""The second LoRA product of deltas that were deferred (`PendingDelta`)."""

from torch import Tensor

from inkling_runtime.ops.backend import Backend, backend_for
from inkling_runtime.ops.lora_pair import add_rows, expand
from inkling_runtime.ops.lora_slots import pair_of
from inkling_runtime.ops.pending_delta import PendingDelta


def expand_pending(y: Tensor, pending: PendingDelta | None) -> Tensor:
    """Add a deferred delta to y [T, out], in place, and return y; None adds nothing."""
    if pending is not None:
        if backend_for(y) is Backend.TRITON:
            _expand_triton(y, pending)
        else:
            _expand_torch(y, pending)
    return y


def _expand_triton(y: Tensor, pending: PendingDelta) -> None:
    from inkling_runtime.ops.kernels import lora_expand as kernels

    kernels.expand(y, pending)


def _expand_torch(y: Tensor, pending: PendingDelta) -> None:
    shrunk = pending.shrunk.sum(0)
    for adapter, rows in pending.adapters.groups:
        for part, column in zip(pending.parts, pending.columns, strict=True):
            pair = pair_of(part.slots, adapter)
            if pair is not None:
                z = shrunk[rows, column : column + pair.rank]
                delta = expand(z, pair.expert_b(part.expert), pair.scaling)
                add_rows(y[:, part.start : part.stop], rows, delta)


def expand_pending_reference(y: Tensor, pending: PendingDelta | None) -> Tensor:
    """Specify `expand_pending`, one token after the other; returns a new tensor."""
    if pending is None:
        return y
    y = y.clone()
    for t, adapter in enumerate(pending.adapters.ids.tolist()):
        row = y[t].float()
        for part, column in zip(pending.parts, pending.columns, strict=True):
            pair = pair_of(part.slots, adapter)
            if pair is not None:
                z = pending.shrunk[:, t, column : column + pair.rank].sum(0)
                b = pair.expert_b(part.expert).float()
                row[part.start : part.stop] += pair.scaling * (b @ z)
        y[t] = row.to(y.dtype)
    return y
