"""The Inkling text model, from token ids to logits, in the order in which it computes.

Not here: images and audio, draft (MTP) layers, sampling, and any state: keys, values,
convolution inputs and adapters are arguments. What a newcomer gets wrong: the embedding is
normed, every branch ends in a short convolution that has its own residual, and the head sees
the hidden state divided by the muP multiplier.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from inkling_runtime.adapter.model_spec import LayerSpec, ModelSpec
from inkling_runtime.adapter.sites import SiteKind
from inkling_runtime.model.attention import Attention
from inkling_runtime.model.batch import Batch, LayerCacheView, LoraSites
from inkling_runtime.model.layers import DenseMLP, LoraLinear, RMSNorm
from inkling_runtime.model.moe import MoE
from inkling_runtime.model.parameters import dimensions
from inkling_runtime.model.ranks import ALONE, Ranks
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.short_conv import short_conv
from inkling_runtime.ops.token_adapters import TokenAdapters


class Inkling:
    """The whole model.

    Args:
        spec: sizes.
        weights: parameters by the names of `parameters.py`; of one rank, its part of them.
        ranks: the ranks that hold the model together.
    """

    def __init__(
        self, spec: ModelSpec, weights: Mapping[str, Tensor], ranks: Ranks = ALONE
    ) -> None:
        self.spec = spec
        self.ranks = ranks
        self.embed = weights["embed"]
        self.first_id = _first_id(spec, ranks)
        self.embed_norm = RMSNorm(weights["embed_norm"], spec.rms_norm_eps)
        self.layers = [
            Layer(spec, layer, _under(weights, f"layers.{layer.index}."), ranks)
            for layer in spec.layers
        ]
        self.norm = RMSNorm(weights["norm"], spec.rms_norm_eps)
        self.head = LoraLinear(weights["head"], {SiteKind.HEAD: len(weights["head"])})

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embed.device

    def forward(
        self, batch: Batch, caches: Sequence[LayerCacheView], lora: Sequence[LoraSites]
    ) -> Tensor:
        """Return the normed hidden states [T, H] of a batch.

        Args:
            batch: the tokens.
            caches: one per layer; the batch's keys, values and inputs are written to them.
            lora: the adapted sites, one mapping per layer.
        """
        hidden = self.embed_norm.forward(self._embed(batch.token_ids))
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
        logits = self.head.forward(hidden / self.spec.mup_multiplier, lora, adapters)
        return self.ranks.join_columns(logits).float()

    def _embed(self, token_ids: Tensor) -> Tensor:
        """Return the embeddings [T, H]; rows that other ranks hold are zero before the sum."""
        if self.ranks.others is None:
            return functional.embedding(token_ids, self.embed)
        rows = token_ids - self.first_id
        foreign = (rows < 0) | (rows >= len(self.embed))
        embedded = functional.embedding(rows.masked_fill(foreign, 0), self.embed)
        return self.ranks.all_reduce(embedded.masked_fill_(foreign[:, None], 0))


class Layer:
    """h += C_attn(Attention(norm(h))), then h += C_mlp(MLP(norm(h)))."""

    def __init__(
        self, spec: ModelSpec, layer: LayerSpec, weights: Mapping[str, Tensor], ranks: Ranks
    ) -> None:
        self.ranks = ranks
        self.attn_norm = RMSNorm(weights["attn_norm"], spec.rms_norm_eps)
        self.attention = Attention(spec, ranks.shard.local_layer(layer), _under(weights, "attn."))
        self.attn_conv = weights["attn_conv"]
        self.mlp_norm = RMSNorm(weights["mlp_norm"], spec.rms_norm_eps)
        mlp = _under(weights, "mlp.")
        self.mlp: DenseMLP | MoE = DenseMLP(mlp) if layer.is_dense else MoE(spec, mlp, ranks.shard)
        self.mlp_conv = weights["mlp_conv"]

    def forward(
        self, hidden: Tensor, batch: Batch, cache: LayerCacheView, lora: LoraSites
    ) -> Tensor:
        """Return the hidden states [T, H] after this layer."""
        normed = self.attn_norm.forward(hidden)
        branch = self.attention.forward(normed, batch, cache, lora)
        hidden = self._add(hidden, branch, self.attn_conv, cache.conv.attn, batch)
        normed = self.mlp_norm.forward(hidden)
        branch = self.mlp.forward(normed, lora, batch.adapters)
        return self._add(hidden, branch, self.mlp_conv, cache.conv.mlp, batch)

    def _add(
        self,
        hidden: Tensor,
        branch: tuple[Tensor, tuple[PendingDelta, ...]],
        weight: Tensor,
        state: Tensor,
        batch: Batch,
    ) -> Tensor:
        """Return h plus the convolution of a branch, which is summed over all ranks first."""
        y, pending = self.ranks.reduce(*branch)
        return short_conv(y, weight, state, batch.conv, residual=hidden, pending=pending)


def _first_id(spec: ModelSpec, ranks: Ranks) -> int:
    """Return the token id of the first embedding row that a rank holds."""
    part = ranks.shard.part_of("embed", (spec.vocab_size, spec.hidden_size), dimensions(spec))
    return part.boxes[0].starts[0]


def _under(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the parameters below a prefix, without it."""
    return {
        name.removeprefix(prefix): weight
        for name, weight in weights.items()
        if name.startswith(prefix)
    }
