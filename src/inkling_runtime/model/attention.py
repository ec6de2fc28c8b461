"""Attention of one layer: projections, convolutions on k and v, norms, scores, output.

Deltas of k and v go in before their convolutions, because they are part of the projection. The
four projections of x are one weight; each keeps its own site.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from inkling_runtime.adapter.model_spec import LayerSpec, ModelSpec
from inkling_runtime.adapter.sites import SiteKind
from inkling_runtime.model.batch import Batch, LayerCacheView, LoraSites
from inkling_runtime.model.layers import LoraLinear, RMSNorm
from inkling_runtime.model.short_conv import ShortConv
from inkling_runtime.ops.relative_attention import AttentionRule, relative_attention
from inkling_runtime.ops.write_kv import write_kv


class Attention:
    """Grouped-query attention with a bias per distance; sliding or global.

    Args:
        spec: sizes of the model.
        layer: sizes of this layer.
        weights: this attention's parameters, by the names of `parameters.py`.
    """

    def __init__(self, spec: ModelSpec, layer: LayerSpec, weights: Mapping[str, Tensor]) -> None:
        self.layer = layer
        query, key = layer.num_heads * layer.head_dim, layer.num_kv_heads * layer.head_dim
        self.qkvr = LoraLinear(
            weights["wqkvr"],
            {
                SiteKind.Q: query,
                SiteKind.K: key,
                SiteKind.V: key,
                SiteKind.R: layer.num_heads * spec.d_rel,
            },
        )
        self.k_conv = ShortConv(weights["k_conv"])
        self.v_conv = ShortConv(weights["v_conv"])
        self.q_norm = RMSNorm(weights["q_norm"], spec.rms_norm_eps)
        self.k_norm = RMSNorm(weights["k_norm"], spec.rms_norm_eps)
        self.profiles = weights["profiles"]
        self.output = LoraLinear(weights["wo"], {SiteKind.O: spec.hidden_size})
        self.rule = _rule(spec, layer)

    def forward(self, x: Tensor, batch: Batch, cache: LayerCacheView, lora: LoraSites) -> Tensor:
        """Return [T, H]; keys and values of x go into the cache."""
        heads, kv_heads, dim = self.layer.num_heads, self.layer.num_kv_heads, self.layer.head_dim
        projected = self.qkvr.forward(x, lora, batch.adapters)
        q, k, v, r = torch.split(projected, self.qkvr.widths, dim=1)
        k = self.k_conv.forward(k, cache.conv.k, batch)
        v = self.v_conv.forward(v, cache.conv.v, batch)
        q = self.q_norm.forward(q.reshape(-1, heads, dim))
        k = self.k_norm.forward(k.view(-1, kv_heads, dim))

        layout = batch.sliding_keys if self.layer.is_sliding else batch.global_keys
        write_kv(k, v.view_as(k), cache.keys, cache.values, layout.slot_mapping)
        attended = relative_attention(
            q,
            r.reshape(len(r), heads, -1),
            self.profiles,
            cache.keys,
            cache.values,
            batch.segments,
            layout,
            self.rule,
        )
        return self.output.forward(attended.flatten(1), lora, batch.adapters)


def _rule(spec: ModelSpec, layer: LayerSpec) -> AttentionRule:
    """Return window and log scaling: sliding layers have the one, global layers the other."""
    if layer.is_sliding:
        return AttentionRule(window=spec.sliding_window)
    return AttentionRule(
        log_scaling_floor=spec.log_scaling_floor, log_scaling_alpha=spec.log_scaling_alpha
    )
