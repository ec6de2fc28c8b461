"""The last inputs of every short convolution, one slot per sequence.

Four convolutions per layer: on k, on v, on the attention output and on the MLP output. Unlike
keys these do not grow with a sequence, so a sequence has one slot for all of them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.cache.block_pool import BlockPool


@dataclass(slots=True)
class ConvState:
    """One layer's states, each [slots, W-1, C], oldest input first."""

    k: Tensor
    v: Tensor
    attn: Tensor
    mlp: Tensor


class ConvStates:
    """The states of all layers."""

    def __init__(self, spec: ModelSpec, device: torch.device, dtype: torch.dtype) -> None:
        back = spec.conv_kernel_size - 1
        self.pool = BlockPool()
        self.layers: list[ConvState] = []
        for layer in spec.layers:
            width = layer.num_kv_heads * layer.head_dim
            key = torch.empty(0, back, width, device=device, dtype=dtype)
            hidden = torch.empty(0, back, spec.hidden_size, device=device, dtype=dtype)
            self.layers.append(ConvState(key, key, hidden, hidden))

    def open(self) -> int:
        """Return the slot of a new sequence; its states are zero."""
        if not self.pool.num_free:
            self._grow()
        (slot,) = self.pool.allocate(1)
        for state in self.layers:
            for tensor in (state.k, state.v, state.attn, state.mlp):
                tensor[slot].zero_()
        return slot

    def close(self, slot: int) -> None:
        """Take a slot back."""
        self.pool.free([slot])

    def _grow(self) -> None:
        self.pool.grow(max(4, 2 * self.pool.capacity))
        for state in self.layers:
            for name in ("k", "v", "attn", "mlp"):
                old = getattr(state, name)
                larger = old.new_zeros(self.pool.capacity, *old.shape[1:])
                larger[: len(old)] = old
                setattr(state, name, larger)
