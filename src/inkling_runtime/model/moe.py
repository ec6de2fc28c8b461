"""The mixture of experts of one layer: router, routed experts, shared experts.

The router is never adapted. Its weights are fp32 whatever the model's dtype, so that distinct
scores do not become ties.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.sites import SiteKind
from inkling_runtime.model.batch import LoraSites
from inkling_runtime.model.parameters import dimensions
from inkling_runtime.model.shard import WHOLE, Shard
from inkling_runtime.ops.expert_shrink import expert_shrink
from inkling_runtime.ops.lora_slots import GatedLora, LoraSlots
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.routed_experts import routed_experts
from inkling_runtime.ops.router import route_tokens
from inkling_runtime.ops.shared_experts import shared_experts
from inkling_runtime.ops.token_adapters import TokenAdapters


class MoE:
    """Σ over the selected experts, plus the shared experts.

    Args:
        spec: sizes of the model.
        weights: this MLP's parameters, by the names of `parameters.py`.
        shard: which part of the experts they are.
    """

    def __init__(
        self, spec: ModelSpec, weights: Mapping[str, Tensor], shard: Shard = WHOLE
    ) -> None:
        self.local = _LocalExperts.of(spec, weights["gate.weight"].device, shard)
        self.top_k = spec.num_experts_per_token
        self.gate = weights["gate.weight"]
        self.gate_bias = weights["gate.bias"]
        self.gate_scale = spec.route_scale * weights["gate.global_scale"].item()
        self.w13, self.w2 = weights["experts.w13"], weights["experts.w2"]
        self.shared_w13, self.shared_w2 = weights["shared.w13"], weights["shared.w2"]
        self.routed_sites = _GatedSites(
            SiteKind.ROUTED_GATE, SiteKind.ROUTED_UP, SiteKind.ROUTED_DOWN
        )
        self.shared_sites = _GatedSites(
            SiteKind.SHARED_GATE, SiteKind.SHARED_UP, SiteKind.SHARED_DOWN
        )

    def forward(
        self, x: Tensor, lora: LoraSites, adapters: TokenAdapters
    ) -> tuple[Tensor, tuple[PendingDelta, ...]]:
        """Return [T, H] and its pending deltas."""
        expert_ids, expert_weights, gammas = route_tokens(
            x, self.gate, self.gate_bias, self.top_k, self.gate_scale
        )
        expert_ids, gammas = self.local.select(expert_ids, gammas)
        routed_lora = self.routed_sites.find(lora, adapters)
        shared_lora = self.shared_sites.find(lora, adapters)
        routed_shrunk, shared_shrunk = expert_shrink(
            x, expert_ids, routed_lora, shared_lora, gammas.shape[1], adapters
        )
        routed, routed_delta = routed_experts(
            x,
            self.w13,
            self.w2,
            expert_ids,
            expert_weights,
            routed_lora,
            adapters,
            routed_shrunk,
        )
        shared, shared_delta = shared_experts(
            x,
            self.shared_w13,
            self.shared_w2,
            gammas,
            shared_lora,
            adapters,
            shared_shrunk,
        )
        pending = tuple(delta for delta in (routed_delta, shared_delta) if delta is not None)
        return routed.add_(shared), pending


@dataclass(frozen=True, slots=True)
class _LocalExperts:
    """The experts that a rank holds, if it does not hold all of them whole."""

    routed: range | None
    """The routed experts; None: all."""
    shared: Tensor | None
    """int64: the shared expert of each local piece; None: they are the experts themselves."""

    @classmethod
    def of(cls, spec: ModelSpec, device: torch.device, shard: Shard) -> "_LocalExperts":
        routed, letters = shard.experts(spec), dimensions(spec, spec.layers[-1])
        pieces = shard.gamma_experts(letters)
        is_whole = pieces == tuple(range(spec.num_shared_experts))
        return cls(
            None if len(routed) == spec.num_experts else routed,
            None if is_whole else torch.tensor(pieces, dtype=torch.int64, device=device),
        )

    def select(self, expert_ids: Tensor, gammas: Tensor) -> tuple[Tensor, Tensor]:
        """Return local expert ids, -1 for those of other ranks, and a gamma per local piece."""
        if self.routed is not None:
            local = expert_ids - self.routed.start
            expert_ids = local.masked_fill_((local < 0) | (local >= len(self.routed)), -1)
        return expert_ids, gammas if self.shared is None else gammas[:, self.shared]


class _GatedSites:
    """Three sites of a layer, looked up in every step and put together when they change."""

    def __init__(self, *kinds: SiteKind) -> None:
        self._kinds = kinds
        self._slots: list[LoraSlots | None] = []
        self._lora: GatedLora | None = None

    def find(self, lora: LoraSites, adapters: TokenAdapters) -> GatedLora | None:
        """Return their slots, or None if no token of the batch has an adapter."""
        if not adapters.groups:
            return None
        slots = [lora.get(kind) for kind in self._kinds]
        if slots != self._slots:
            self._slots = slots
            self._lora = None if slots == [None] * len(slots) else GatedLora(*slots)
        return self._lora
