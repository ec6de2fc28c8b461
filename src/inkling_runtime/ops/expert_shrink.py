"""The first LoRA product of the gate and up sites of a layer's experts, routed and shared.

They all read the same input, so on a GPU one launch serves the four sites, and a factor that is
shared by all experts is applied once per token, not once per route. Compiled code and plain torch
on a CPU take this product where they need it, so there nothing is shrunk ahead.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_runtime.ops.backend import Backend, backend_for
from inkling_runtime.ops.lora_slots import GatedLora, LoraSlots, pair_of
from inkling_runtime.ops.token_adapters import TokenAdapters


@dataclass(frozen=True, slots=True)
class GatedShrunk:
    """Products of the gate and of the up site of one kind of experts; None: no such site.

    fp32 [P, T, copies, R]: P partial sums. A copy is a token's k-th expert (or the shared expert
    s); an A that is shared by all has copy 0 alone. R is a power of two, at least each rank, and
    columns beyond an adapter's own rank are 0. What an adapter does not have is never read.
    """

    gate: Tensor | None
    up: Tensor | None


def expert_shrink(
    x: Tensor,
    expert_ids: Tensor,
    routed: GatedLora | None,
    shared: GatedLora | None,
    num_shared: int,
    adapters: TokenAdapters,
) -> tuple[GatedShrunk | None, GatedShrunk | None]:
    """Return the first products of the routed and of the shared experts.

    Semantics::

        Σ_p routed.gate[p, t, k, :rank] = A_e · x[t]      e = expert_ids[t, k]; k = 0 if shared
        Σ_p shared.gate[p, t, s, :rank] = A_s · x[t]      s = 0 if A is shared; up likewise

    Args:
        x: [T, H].
        expert_ids: [T, K] int64.
        routed: the slots of the routed experts' sites; None: no deltas.
        shared: the slots of the shared experts' sites; None: no deltas.
        num_shared: S.
        adapters: the adapter of each token.

    Returns:
        None for experts without a gate or up site, and None twice where the ops of the experts
        take the product themselves.
    """
    if backend_for(x) is Backend.TRITON:
        return _shrink_triton(x, expert_ids, routed, shared, num_shared, adapters)
    return None, None


def _shrink_triton(
    x: Tensor,
    expert_ids: Tensor,
    routed: GatedLora | None,
    shared: GatedLora | None,
    num_shared: int,
    adapters: TokenAdapters,
) -> tuple[GatedShrunk | None, GatedShrunk | None]:
    from inkling_runtime.ops.kernels.expert_shrink import shrink_sites

    if not adapters.groups:
        return None, None
    sites = [lora and site for lora in (routed, shared) for site in _gate_and_up(lora)]
    if not any(sites):
        return None, None
    gate, up, shared_gate, shared_up = shrink_sites(x, expert_ids, sites, num_shared, adapters.ids)
    return (
        GatedShrunk(gate, up) if any(sites[:2]) else None,
        GatedShrunk(shared_gate, shared_up) if any(sites[2:]) else None,
    )


def _gate_and_up(lora: GatedLora | None) -> Sequence[LoraSlots | None]:
    return (lora.gate, lora.up) if lora else (None, None)


def expert_shrink_reference(
    x: Tensor, expert_ids: Tensor, slots: LoraSlots, adapters: TokenAdapters
) -> Tensor:
    """Specify the product of one site, fp32 [T, K, largest rank]; every copy is written.

    Args:
        x: [T, H].
        expert_ids: [T, K]; for shared experts 0 … S-1 for every token.
        slots: the site.
        adapters: the adapter of each token.
    """
    z = torch.zeros(*expert_ids.shape, slots.max_rank, device=x.device)
    for t, adapter in enumerate(adapters.ids.tolist()):
        pair = pair_of(slots, adapter)
        for k, expert in enumerate(expert_ids[t].tolist()):
            if pair is not None:
                z[t, k, : pair.rank] = pair.expert_a(expert).float() @ x[t].float()
    return z
