"""The Inkling text model, from token ids to logits, in the order in which it computes.

Not here: images and audio, draft (MTP) layers, sampling, and any state: keys, values,
convolution inputs and adapters are arguments. What a newcomer gets wrong: the embedding is
normed, every branch ends in a short convolution that has its own residual, and the head sees
the hidden state divided by the muP multiplier.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor
from torch.nn import functional

from inkling_runtime.adapter.model_spec import LayerSpec, ModelSpec
from inkling_runtime.adapter.sites import SiteKind
from inkling_runtime.model.attention import Attention
from inkling_runtime.model.batch import Batch, LayerCacheView, LoraSites
from inkling_runtime.model.layers import DenseMLP, LoraLinear, RMSNorm
from inkling_runtime.model.moe import MoE
from inkling_runtime.model.short_conv import ShortConv
from inkling_runtime.ops.token_adapters import TokenAdapters


class Inkling:
    """The whole model.

    Args:
        spec: sizes.
        weights: parameters by the names of `parameters.py`.
    """

    def __init__(self, spec: ModelSpec, weights: Mapping[str, Tensor]) -> None:
        self.spec = spec
        self.embed = weights["embed"]
        self.embed_norm = RMSNorm(weights["embed_norm"], spec.rms_norm_eps)
        self.layers = [
            Layer(spec, layer, _under(weights, f"layers.{layer.index}.")) for layer in spec.layers
        ]
        self.norm = RMSNorm(weights["norm"], spec.rms_norm_eps)
        self.head = LoraLinear(weights["head"], {SiteKind.HEAD: spec.unpadded_vocab_size})

    def forward(
        self, batch: Batch, caches: Sequence[LayerCacheView], lora: Sequence[LoraSites]
    ) -> Tensor:
        """Return the normed hidden states [T, H] of a batch.

        Args:
            batch: the tokens.
            caches: one per layer; the batch's keys, values and inputs are written to them.
            lora: the adapted sites, one mapping per layer.
        """
        hidden = self.embed_norm.forward(functional.embedding(batch.token_ids, self.embed))
        for layer, cache, sites in zip(self.layers, caches, lora, strict=True):
            hidden = layer.forward(hidden, batch, cache, sites)
        return self.norm.forward(hidden)

    def logits(self, hidden: Tensor, lora: LoraSites, adapters: TokenAdapters) -> Tensor:
        """Return fp32 logits [T, V] of hidden states; padded ids have none.

        Args:
            hidden: [T, H], rows of what `forward` returned.
            lora: the head's site.
            adapters: the adapter of each of these rows.
        """
        return self.head.forward(hidden / self.spec.mup_multiplier, lora, adapters).float()


class Layer:
    """h += C_attn(Attention(norm(h))), then h += C_mlp(MLP(norm(h)))."""

    def __init__(self, spec: ModelSpec, layer: LayerSpec, weights: Mapping[str, Tensor]) -> None:
        self.attn_norm = RMSNorm(weights["attn_norm"], spec.rms_norm_eps)
        self.attention = Attention(spec, layer, _under(weights, "attn."))
        self.attn_conv = ShortConv(weights["attn_conv"])
        self.mlp_norm = RMSNorm(weights["mlp_norm"], spec.rms_norm_eps)
        mlp = _under(weights, "mlp.")
        self.mlp: DenseMLP | MoE = DenseMLP(mlp) if layer.is_dense else MoE(spec, mlp)
        self.mlp_conv = ShortConv(weights["mlp_conv"])

    def forward(
        self, hidden: Tensor, batch: Batch, cache: LayerCacheView, lora: LoraSites
    ) -> Tensor:
        """Return the hidden states [T, H] after this layer."""
        branch = self.attention.forward(self.attn_norm.forward(hidden), batch, cache, lora)
        branch = self.attn_conv.forward(branch, cache.conv.attn, batch)
        normed, hidden = self.mlp_norm.forward_add(branch, hidden)
        branch = self.mlp.forward(normed, lora, batch.adapters)
        return hidden + self.mlp_conv.forward(branch, cache.conv.mlp, batch)


def _under(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the parameters below a prefix, without it."""
    return {
        name.removeprefix(prefix): weight
        for name, weight in weights.items()
        if name.startswith(prefix)
    }
