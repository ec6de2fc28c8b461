"""Attention of one layer: projections, convolutions on k and v, norms, scores, output.

Deltas of k and v go in before their convolutions, because they are part of the projection. The
four projections of x are one weight; each keeps its own site.
"""

from collections.abc import Mapping

from torch import Tensor

from inkling_runtime.adapter.model_spec import LayerSpec, ModelSpec
from inkling_runtime.adapter.sites import SiteKind
from inkling_runtime.model.batch import Batch, LayerCacheView, LoraSites
from inkling_runtime.model.layers import LoraLinear
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.qkvr_prologue import (
    HeadShape,
    PrologueState,
    PrologueWeights,
    qkvr_prologue,
)
from inkling_runtime.ops.relative_attention import AttentionRule, relative_attention


class Attention:
    """Grouped-query attention with a bias per distance; sliding or global.

    Args:
        spec: sizes of the model.
        layer: sizes of this layer (of this rank's part of it).
        weights: this attention's parameters, by the names of `parameters.py`.
    """

    def __init__(self, spec: ModelSpec, layer: LayerSpec, weights: Mapping[str, Tensor]) -> None:
        self.is_sliding = layer.is_sliding
        self.shape = HeadShape(layer.num_heads, layer.num_kv_heads, layer.head_dim, spec.d_rel)
        sites = (SiteKind.Q, SiteKind.K, SiteKind.V, SiteKind.R)
        self.qkvr = LoraLinear(weights["wqkvr"], dict(zip(sites, self.shape.widths, strict=True)))
        self.prologue = PrologueWeights(
            weights["k_conv"],
            weights["v_conv"],
            weights["q_norm"],
            weights["k_norm"],
            spec.rms_norm_eps,
        )
        self.profiles = weights["profiles"]
        self.output = LoraLinear(weights["wo"], {SiteKind.O: spec.hidden_size})
        self.rule = _rule(spec, layer)

    def forward(
        self, x: Tensor, batch: Batch, cache: LayerCacheView, lora: LoraSites
    ) -> tuple[Tensor, tuple[PendingDelta, ...]]:
        """Return [T, H] and its pending deltas; keys and values of x go into the cache."""
        layout = batch.sliding_keys if self.is_sliding else batch.global_keys
        queries, relatives = qkvr_prologue(
            *self.qkvr.forward_deferred(x, lora, batch.adapters),
            self.shape,
            self.prologue,
            PrologueState(cache.conv.k, cache.conv.v, cache.keys, cache.values),
            batch.conv,
            layout.slot_mapping,
        )
        attended = relative_attention(
            queries,
            relatives,
            self.profiles,
            cache.keys,
            cache.values,
            batch.segments,
            layout,
            self.rule,
        )
        y, pending = self.output.forward_deferred(attended.flatten(1), lora, batch.adapters)
        return y, () if pending is None else (pending,)


def _rule(spec: ModelSpec, layer: LayerSpec) -> AttentionRule:
    """Return window and log scaling: sliding layers have the one, global layers the other."""
    if layer.is_sliding:
        return AttentionRule(window=spec.sliding_window)
    return AttentionRule(
        log_scaling_floor=spec.log_scaling_floor, log_scaling_alpha=spec.log_scaling_alpha
    )
