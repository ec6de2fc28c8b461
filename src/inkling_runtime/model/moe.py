"""The mixture of experts of one layer: router, routed experts, shared experts.

The router is never adapted. Its weights are fp32 whatever the model's dtype, so that distinct
scores do not become ties.
"""

from collections.abc import Mapping

from torch import Tensor

from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.sites import SiteKind
from inkling_runtime.model.batch import LoraSites
from inkling_runtime.ops.lora_pair import GatedLora
from inkling_runtime.ops.routed_experts import routed_experts
from inkling_runtime.ops.router import route_tokens
from inkling_runtime.ops.shared_experts import shared_experts
from inkling_runtime.ops.token_adapters import TokenAdapters

_ROUTED = (SiteKind.ROUTED_GATE, SiteKind.ROUTED_UP, SiteKind.ROUTED_DOWN)
_SHARED = (SiteKind.SHARED_GATE, SiteKind.SHARED_UP, SiteKind.SHARED_DOWN)


class MoE:
    """Σ over the selected experts, plus the shared experts.

    Args:
        spec: sizes of the model.
        weights: this MLP's parameters, by the names of `parameters.py`.
    """

    def __init__(self, spec: ModelSpec, weights: Mapping[str, Tensor]) -> None:
        self.top_k = spec.num_experts_per_token
        self.gate = weights["gate.weight"]
        self.gate_bias = weights["gate.bias"]
        self.gate_scale = spec.route_scale * weights["gate.global_scale"].item()
        self.w13, self.w2 = weights["experts.w13"], weights["experts.w2"]
        self.shared_w13, self.shared_w2 = weights["shared.w13"], weights["shared.w2"]

    def forward(self, x: Tensor, lora: LoraSites, adapters: TokenAdapters) -> Tensor:
        """Return [T, H]."""
        expert_ids, expert_weights, gammas = route_tokens(
            x, self.gate, self.gate_bias, self.top_k, self.gate_scale
        )
        routed = routed_experts(
            x,
            self.w13,
            self.w2,
            expert_ids,
            expert_weights,
            _gated_lora(lora, _ROUTED, adapters),
            adapters,
        )
        shared = shared_experts(
            x,
            self.shared_w13,
            self.shared_w2,
            gammas,
            _gated_lora(lora, _SHARED, adapters),
            adapters,
        )
        return routed.add_(shared)


def _gated_lora(
    lora: LoraSites, kinds: tuple[SiteKind, SiteKind, SiteKind], adapters: TokenAdapters
) -> GatedLora | None:
    """Return the slots of three sites, or None if no token of the batch has an adapter."""
    if not adapters.groups or not any(kind in lora for kind in kinds):
        return None
    none = [None] * (adapters.groups[-1][0] + 1)
    gate, up, down = (lora.get(kind, none) for kind in kinds)
    return GatedLora(gate, up, down)
