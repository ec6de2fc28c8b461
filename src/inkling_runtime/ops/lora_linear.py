"""A linear map with the deltas of the adapters that its tokens use.

One weight may hold several sites side by side (q, k, v and r; gate and up), each with its own
factors for its own rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from inkling_runtime.ops.lora_pair import LoraSlots, add_rows, delta_reference, expand, shrink
from inkling_runtime.ops.token_adapters import TokenAdapters


@dataclass(frozen=True, slots=True)
class LoraPart:
    """The site that owns the output features `start` to `stop` of a weight."""

    start: int
    stop: int
    slots: LoraSlots


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
    y = functional.linear(x, weight)
    for adapter, rows in adapters.groups:
        for part in parts:
            pair = part.slots[adapter]
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
            row[part.start : part.stop] += delta_reference(part.slots, adapter, x[t])
        y[t] = row.to(x.dtype)
    return y
