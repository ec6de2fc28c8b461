"""The cache of a model: what its sequences own, and what a step reads and writes.

Blocks are handed out as positions are reached, never moved, and shared by nothing: an allocator
with another policy can replace `KVBlocks` without the model or the ops noticing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from inkling_runtime.adapter.model_spec import LayerSpec, ModelSpec
from inkling_runtime.cache.conv_states import ConvState, ConvStates
from inkling_runtime.cache.kv_blocks import BlockTable, KVBlocks
from inkling_runtime.ops.key_layout import KeyLayout


@dataclass(slots=True)
class SequenceCache:
    """What one sequence owns."""

    conv_slot: int
    global_table: BlockTable = field(default_factory=BlockTable)
    sliding_table: BlockTable = field(default_factory=BlockTable)


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer's tensors for one step."""

    keys: Tensor
    values: Tensor
    conv: ConvState


class ModelCache:
    """Keys, values and convolution states of all layers and sequences."""

    def __init__(
        self, spec: ModelSpec, device: torch.device, dtype: torch.dtype, block_size: int = 64
    ) -> None:
        self.device = device
        self._convs = ConvStates(spec, device, dtype)
        self._kinds = [layer.is_sliding for layer in spec.layers]
        self._blocks: dict[bool, KVBlocks] = {}
        for sliding in (False, True):
            layers = [layer for layer in spec.layers if layer.is_sliding is sliding]
            window = spec.sliding_window if sliding else None
            shape = _row_shape(layers)
            self._blocks[sliding] = KVBlocks(len(layers), shape, block_size, window, device, dtype)

    def open(self) -> SequenceCache:
        """Return the cache of a new sequence."""
        return SequenceCache(self._convs.open())

    def extend(self, sequence: SequenceCache, begin: int, end: int, total: int) -> None:
        """Give a sequence room for the positions [begin, end) that the next step computes.

        Global layers get room for `total` positions at once, so that their blocks are neighbours;
        sliding layers first give back what no position from `begin` on can see.
        """
        self._blocks[False].extend(sequence.global_table, max(end, total))
        self._blocks[True].trim(sequence.sliding_table, begin)
        self._blocks[True].extend(sequence.sliding_table, end)

    def close(self, sequence: SequenceCache) -> None:
        """Take back everything that a sequence owns."""
        self._blocks[False].release(sequence.global_table)
        self._blocks[True].release(sequence.sliding_table)
        self._convs.close(sequence.conv_slot)

    def layers(self) -> list[LayerCache]:
        """Return the tensors of every layer; valid until the next `open` or `extend`."""
        used = {False: 0, True: 0}
        layers = []
        for kind, conv in zip(self._kinds, self._convs.layers, strict=True):
            blocks, index = self._blocks[kind], used[kind]
            used[kind] += 1
            layers.append(LayerCache(blocks.keys[index], blocks.values[index], conv))
        return layers

    def layouts(
        self, sequences: Sequence[SequenceCache], spans: Sequence[tuple[int, int]]
    ) -> tuple[KeyLayout, KeyLayout]:
        """Return the layouts of global and of sliding layers for new positions [from, to)."""
        return (
            self._blocks[False].layout([s.global_table for s in sequences], spans),
            self._blocks[True].layout([s.sliding_table for s in sequences], spans),
        )

    @property
    def num_used_blocks(self) -> int:
        """Blocks that sequences own, of both kinds."""
        pools = [blocks.pool for blocks in self._blocks.values()]
        return sum(pool.capacity - pool.num_free for pool in pools)


def _row_shape(layers: Sequence[LayerSpec]) -> tuple[int, int]:
    return (layers[0].num_kv_heads, layers[0].head_dim) if layers else (1, 1)
