"""A linear map with the deltas of the adapters that its tokens use.

One weight may hold several sites side by side (q, k, v and r; gate and up), each with its own
factors for its own rows.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from inkling_runtime.ops.backend import Backend, backend_for
from inkling_runtime.ops.linear import linear
from inkling_runtime.ops.lora_expand import expand_pending
from inkling_runtime.ops.lora_pair import add_rows, delta_reference, expand, shrink
from inkling_runtime.ops.lora_shrink import Shrunk, lora_shrink
from inkling_runtime.ops.lora_slots import LoraPart, LoraParts, pair_of
from inkling_runtime.ops.native import arguments
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.token_adapters import TokenAdapters

MAX_NATIVE_TOKENS = 16
"""Above, torch's matrix product is faster, in fp32 a little earlier and in bf16 a little later."""


def lora_linear(
    x: Tensor, weight: Tensor, parts: Sequence[LoraPart], adapters: TokenAdapters
) -> Tensor:
    """Return the linear map of every token plus the delta of its adapter.

    Semantics::

        y[t]              = weight · x[t]
        y[t, start:stop] += scaling · B · (A · x[t])      of slots[ids[t]], for every part,
                                                          if ids[t] ≥ 0 and it has the site

    Rows without an adapter are the plain product, bit for bit.

    Args:
        x: [T, in].
        weight: [out, in].
        parts: sites within the output features; features in no part get no delta.
        adapters: the adapter of each token.

    Returns:
        [T, out] in the dtype of x; the delta is computed in fp32.
    """
    if backend_for(x) is Backend.NATIVE and _is_native(x, weight, parts):
        return _linear_native(x, weight, parts, adapters)
    if backend_for(x) is Backend.TRITON:
        y, pending = _deferred_triton(x, weight, parts, adapters, None)
        return expand_pending(y, pending)
    return _linear_torch(x, weight, parts, adapters)


def lora_linear_deferred(
    x: Tensor,
    weight: Tensor,
    parts: Sequence[LoraPart],
    adapters: TokenAdapters,
    shrunk: Shrunk | None = None,
) -> tuple[Tensor, PendingDelta | None]:
    """Return `lora_linear` in two parts: the map, and what its reader has still to add.

    The second part is None where the first is already complete.

    Args:
        x: [T, in].
        weight: [out, in].
        parts: sites within the output features.
        adapters: the adapter of each token.
        shrunk: A · x of the parts where whoever made x has computed it already.
    """
    if backend_for(x) is Backend.TRITON:
        return _deferred_triton(x, weight, parts, adapters, shrunk)
    return lora_linear(x, weight, parts, adapters), None


def _deferred_triton(
    x: Tensor,
    weight: Tensor,
    parts: Sequence[LoraPart],
    adapters: TokenAdapters,
    shrunk: Shrunk | None,
) -> tuple[Tensor, PendingDelta | None]:
    """Leave the product to cuBLAS, and B · (A · x) to whoever reads it."""
    y = functional.linear(x, weight)
    if not parts:
        return y, None
    shrunk = shrunk or lora_shrink(x, [part.slots for part in parts], adapters)
    return y, PendingDelta(shrunk.values, tuple(parts), shrunk.columns, adapters)


def _is_native(x: Tensor, weight: Tensor, parts: Sequence[LoraPart]) -> bool:
    return (
        0 < x.shape[0] <= MAX_NATIVE_TOKENS
        and x.dtype == weight.dtype
        and arguments.has_kernels(x.dtype)
        and weight.is_contiguous()
        and (not parts or arguments.are_readable((part.slots for part in parts), x.dtype))
    )


def _linear_native(
    x: Tensor, weight: Tensor, parts: Sequence[LoraPart], adapters: TokenAdapters
) -> Tensor:
    x = arguments.rows(x)
    (num_tokens, in_features), out_features = x.shape, weight.shape[0]
    y = x.new_empty(num_tokens, out_features)
    numbers = None
    if parts and adapters.groups:
        numbers = (parts if isinstance(parts, LoraParts) else LoraParts(parts)).numbers
    arguments.kernel("linear", x.dtype)(
        x.data_ptr(),
        x.stride(0),
        weight.data_ptr(),
        y.data_ptr(),
        num_tokens,
        out_features,
        in_features,
        None if numbers is None else arguments.address(numbers),
        0 if numbers is None else len(parts),
        adapters.ids.data_ptr(),
        torch.get_num_threads(),
    )
    return y


def _linear_torch(
    x: Tensor, weight: Tensor, parts: Sequence[LoraPart], adapters: TokenAdapters
) -> Tensor:
    y = linear(x, weight)
    for adapter, rows in adapters.groups:
        for part in parts:
            pair = pair_of(part.slots, adapter)
            if pair is not None:
                delta = expand(shrink(x[rows], pair.a), pair.b, pair.scaling)
                add_rows(y[:, part.start : part.stop], rows, delta)
    return y


def lora_linear_reference(
    x: Tensor, weight: Tensor, parts: Sequence[LoraPart], adapters: TokenAdapters
) -> Tensor:
    """Specify `lora_linear`, one token after the other."""
    y = torch.empty(x.shape[0], weight.shape[0], dtype=x.dtype, device=x.device)
    for t, adapter in enumerate(adapters.ids.tolist()):
        row = weight.float() @ x[t].float()
        for part in parts:
            row[part.start : part.stop] += delta_reference(pair_of(part.slots, adapter), x[t])
        y[t] = row.to(x.dtype)
    return y
