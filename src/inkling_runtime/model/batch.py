"""What a forward pass gets besides weights: its tokens, and where their sequences' state is.

An explicit argument of every forward; there is no global context. The cache and the adapters are
seen through what the model reads of them, so that neither room knows the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from inkling_runtime.adapter.sites import SiteKind
from inkling_runtime.ops.conv_plan import ConvPlan
from inkling_runtime.ops.key_layout import KeyLayout
from inkling_runtime.ops.lora_slots import LoraSlots
from inkling_runtime.ops.segments import Segments
from inkling_runtime.ops.token_adapters import TokenAdapters


@dataclass(frozen=True, slots=True)
class Batch:
    """T flat tokens of B sequences, those of a sequence in neighbouring rows."""

    token_ids: Tensor
    """int64 [T]."""
    segments: Segments
    conv: ConvPlan
    """Which convolution states the step reads and writes."""
    global_keys: KeyLayout
    sliding_keys: KeyLayout
    adapters: TokenAdapters


class ConvStateView(Protocol):
    """One layer's convolution states, each [slots, W-1, C]."""

    k: Tensor
    v: Tensor
    attn: Tensor
    mlp: Tensor


class LayerCacheView(Protocol):
    """One layer's part of the cache."""

    @property
    def keys(self) -> Tensor:
        """[blocks, block_size, N_kv, D]."""

    @property
    def values(self) -> Tensor:
        """[blocks, block_size, N_kv, D]."""

    @property
    def conv(self) -> ConvStateView:
        """The layer's convolution states."""


LoraSites = Mapping[SiteKind, LoraSlots]
"""The adapted sites of one layer (or the head); a site that no adapter has is absent."""
