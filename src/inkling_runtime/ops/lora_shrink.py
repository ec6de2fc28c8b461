"""The first LoRA product of several sites that read the same input.

Only where its result is expanded by somebody else (`PendingDelta`), that is on a GPU. Not for
experts: their product is `expert_shrink`.
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
"""Sites of one launch: q, k, v and r."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """Partial sums of A · x; what is not said to be written is undefined."""

    values: Tensor
    """fp32 [P, T, W]."""
    columns: tuple[int, ...]
    """The first column of each site."""


def lora_shrink(x: Tensor, sites: Sequence[LoraSlots], adapters: TokenAdapters) -> Shrunk | None:
    """Return A · x of every site, or None where LoRA products are not taken apart.

    Semantics::

        c = columns[i]
        Σ_p values[p, t, c : c + rank] = A · x[t]        A of sites[i][ids[t]], if ids[t] ≥ 0

    Everything else is undefined.

    Args:
        x: [T, in].
        sites: at most `MAX_SITES`, without experts.
        adapters: the adapter of each token.
    """
    if backend_for(x) is not Backend.TRITON:
        return None
    return _shrink_triton(x, sites, adapters)


def _shrink_triton(x: Tensor, sites: Sequence[LoraSlots], adapters: TokenAdapters) -> Shrunk:
    from inkling_runtime.ops.kernels import lora_shrink as kernels

    if len(sites) > MAX_SITES:
        raise ValueError(f"{len(sites)} sites in one launch, expected at most {MAX_SITES}")
    return Shrunk(*kernels.shrink(x, adapters.ids, sites))


def lora_shrink_reference(x: Tensor, sites: Sequence[LoraSlots], adapters: TokenAdapters) -> Shrunk:
    """Specify `lora_shrink`, one token after the other; one partial sum, 0 where undefined."""
    width = max(slots.max_rank for slots in sites)
    columns = tuple(width * i for i in range(len(sites)))
    values = torch.zeros(1, len(x), width * len(sites), device=x.device)
    for t, adapter in enumerate(adapters.ids.tolist()):
        for slots, column in zip(sites, columns, strict=True):
            pair = pair_of(slots, adapter)
            if pair is not None:
                values[0, t, column : column + pair.rank] = shrink(x[t], pair.a)
    return Shrunk(values, columns)
