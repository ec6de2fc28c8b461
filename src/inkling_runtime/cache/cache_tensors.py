"""The tensors of the cache: keys and values in blocks, convolution states in slots.

Not their bookkeeping: which sequence owns which block or slot is decided elsewhere. Allocated
once; on a CPU the memory is taken only as it is first written.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_runtime.adapter.model_spec import ModelSpec

ZERO_SLOT = 0
"""The convolution slot that is never written: the state of a new sequence."""


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """How much a cache holds."""

    global_blocks: int
    """Blocks of every global layer."""
    sliding_blocks: int
    """Blocks of every sliding layer."""
    conv_slots: int
    """Convolution states, `ZERO_SLOT` included."""
    block_size: int = 64
    """Tokens per block."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """Places that no sequence ever owns: where the padding of a batch writes."""

    global_block: int
    sliding_block: int
    conv_slot: int


@dataclass(frozen=True, slots=True)
class ConvState:
    """One layer's states, each [slots, W-1, C], oldest input first."""

    k: Tensor
    v: Tensor
    attn: Tensor
    mlp: Tensor


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer's part."""

    keys: Tensor
    """[blocks, block_size, N_kv, D]."""
    values: Tensor
    conv: ConvState


class CacheTensors:
    """Keys, values and convolution states of all layers.

    Args:
        spec: sizes of the model (of this rank's part of it).
        sizes: how much it holds.
        device: where.
        dtype: the model's.
    """

    def __init__(
        self, spec: ModelSpec, sizes: CacheSizes, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.sizes = sizes
        # One more of each than the sizes say.
        self.scratch = Scratch(sizes.global_blocks, sizes.sliding_blocks, sizes.conv_slots)
        self.layers: list[LayerCache] = []
        back, hidden = spec.conv_kernel_size - 1, spec.hidden_size

        def states(width: int) -> Tensor:
            return torch.zeros(sizes.conv_slots + 1, back, width, device=device, dtype=dtype)

        for layer in spec.layers:
            blocks = sizes.sliding_blocks if layer.is_sliding else sizes.global_blocks
            shape = (blocks + 1, sizes.block_size, layer.num_kv_heads, layer.head_dim)
            keys, values = (torch.empty(shape, device=device, dtype=dtype) for _ in range(2))
            width = layer.num_kv_heads * layer.head_dim
            conv = ConvState(states(width), states(width), states(hidden), states(hidden))
            self.layers.append(LayerCache(keys, values, conv))
