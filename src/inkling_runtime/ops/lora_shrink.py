"""The first LoRA product of several sites that read the same input.

Only where its result is expanded by somebody else (`PendingDelta`), that is on a GPU. Not per
route: a factor A that differs from routed expert to routed expert is left to `routed_experts`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_runtime.ops.backend import Backend, backend_for
from inkling_runtime.ops.lora_pair import shrink
from inkling_runtime.ops.lora_slots import LoraSlots, pair_of
from inkling_runtime.ops.token_adapters import TokenAdapters

MAX_SITES = 4
"""Sites of one launch: q, k, v and r; or gate and up of routed and of shared experts."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """Partial sums of A · x; what is not said to be written is undefined."""

    values: Tensor
    """fp32 [P, T, W]."""
    columns: tuple[int, ...]
    """The first column of each site."""
    width: int
    """Columns of one expert of a site, at least the largest rank."""


def lora_shrink(
    x: Tensor,
    sites: Sequence[LoraSlots],
    adapters: TokenAdapters,
    experts: Sequence[int] | None = None,
) -> Shrunk | None:
    """Return A · x of every site, or None where LoRA products are not taken apart.

    Semantics::

        c = columns[i] + e · width
        Σ_p values[p, t, c : c + rank] = A_e · x[t]        A of sites[i][ids[t]], if ids[t] ≥ 0

    for e < experts[i]. An A that is shared by all experts is applied once, as e = 0. One that
    has an expert dimension is left out if experts[i] is 1. Everything else is undefined.

    Args:
        x: [T, in].
        sites: at most `MAX_SITES`.
        adapters: the adapter of each token.
        experts: how many experts of each site see x; None: one of each.
    """
    if backend_for(x) is not Backend.TRITON:
        return None
    return _shrink_triton(x, sites, adapters, experts or (1,) * len(sites))


def _shrink_triton(
    x: Tensor, sites: Sequence[LoraSlots], adapters: TokenAdapters, experts: Sequence[int]
) -> Shrunk:
    from inkling_runtime.ops.kernels import lora_shrink as kernels

    if len(sites) > MAX_SITES:
        raise ValueError(f"{len(sites)} sites in one launch, expected at most {MAX_SITES}")
    return Shrunk(*kernels.shrink(x, adapters.ids, sites, experts))


def lora_shrink_reference(
    x: Tensor,
    sites: Sequence[LoraSlots],
    adapters: TokenAdapters,
    experts: Sequence[int] | None = None,
) -> Shrunk:
    """Specify `lora_shrink`, one token after the other; one partial sum, 0 where undefined."""
    counts = experts or (1,) * len(sites)
    width = max(slots.max_rank for slots in sites)
    columns = tuple(width * sum(counts[:i]) for i in range(len(sites)))
    values = torch.zeros(1, len(x), width * sum(counts), device=x.device)
    for t, adapter in enumerate(adapters.ids.tolist()):
        for slots, column, count in zip(sites, columns, counts, strict=True):
            pair = pair_of(slots, adapter)
            if pair is None or (count == 1 and pair.a.dim() == 3 and len(pair.a) > 1):
                continue
            for expert, a in enumerate(pair.a.view(-1, *pair.a.shape[-2:])):
                first = column + expert * width
                values[0, t, first : first + pair.rank] = shrink(x[t], a)
    return Shrunk(values, columns, width)
