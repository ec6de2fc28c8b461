"""Keys and values of layers of one kind (all sliding, or all global), in blocks.

Every layer of the kind uses the same block numbers. Sliding layers give back the blocks that
their window has left behind; that is why a block table has a start.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from inkling_runtime.cache.block_pool import BlockPool
from inkling_runtime.ops.key_layout import KeyLayout


@dataclass(slots=True)
class BlockTable:
    """The blocks of one sequence in the order of positions."""

    blocks: list[int] = field(default_factory=list)
    start: int = 0
    """Position of the first row of the first block."""

    @property
    def is_run(self) -> bool:
        """Whether the blocks are neighbours in ascending order."""
        first = self.blocks[0]
        return self.blocks == list(range(first, first + len(self.blocks)))


class KVBlocks:
    """The block tensors of layers of one kind.

    Args:
        num_layers: layers of the kind.
        row_shape: (N_kv, D) of a token's keys.
        block_size: tokens per block.
        window: tokens that a query sees, its own included; None: all.
        device: where the tensors are.
        dtype: the model's.
    """

    def __init__(
        self,
        num_layers: int,
        row_shape: tuple[int, int],
        block_size: int,
        window: int | None,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.block_size = block_size
        self.window = window
        self.device = device
        self.pool = BlockPool()
        empty = torch.empty(0, block_size, *row_shape, device=device, dtype=dtype)
        self.keys: list[Tensor] = [empty] * num_layers
        self.values: list[Tensor] = [empty] * num_layers

    def extend(self, table: BlockTable, length: int) -> None:
        """Give a table room for the positions below `length`."""
        missing = -(-(length - table.start) // self.block_size) - len(table.blocks)
        if missing <= 0:
            return
        if missing > self.pool.num_free:
            self._grow(missing - self.pool.num_free)
        after = table.blocks[-1] if table.blocks else None
        table.blocks += self.pool.allocate(missing, after)

    def trim(self, table: BlockTable, position: int) -> None:
        """Give back the blocks that no query at `position` or later can see."""
        if self.window is None:
            return
        count = max(position - self.window + 1 - table.start, 0) // self.block_size
        self.pool.free(table.blocks[:count])
        del table.blocks[:count]
        table.start += count * self.block_size

    def release(self, table: BlockTable) -> None:
        """Give back all blocks of a table."""
        self.pool.free(table.blocks)
        table.blocks = []

    def layout(self, tables: Sequence[BlockTable], spans: Sequence[tuple[int, int]]) -> KeyLayout:
        """Return where a step reads and writes, given each sequence's new positions [from, to)."""
        slots = [
            slot
            for table, span in zip(tables, spans, strict=True)
            for slot in self._slots(table, span)
        ]
        longest = max(len(table.blocks) for table in tables)
        rows = [table.blocks + [0] * (longest - len(table.blocks)) for table in tables]
        return KeyLayout(
            slot_mapping=torch.tensor(slots, dtype=torch.int64, device=self.device),
            block_table=torch.tensor(rows, dtype=torch.int64, device=self.device),
            first_blocks=tuple(table.blocks[0] if table.is_run else None for table in tables),
            starts=tuple(table.start for table in tables),
            lengths=tuple(end for _, end in spans),
        )

    def _slots(self, table: BlockTable, span: tuple[int, int]) -> list[int]:
        size = self.block_size
        offsets = range(span[0] - table.start, span[1] - table.start)
        return [table.blocks[offset // size] * size + offset % size for offset in offsets]

    def _grow(self, missing: int) -> None:
        """Enlarge every layer's tensors by at least `missing` blocks, at least twofold."""
        old = self.pool.capacity
        self.pool.grow(old + max(missing, old))
        for tensors in (self.keys, self.values):
            for layer, tensor in enumerate(tensors):
                larger = tensor.new_empty(self.pool.capacity, *tensor.shape[1:])
                larger[:old] = tensor
                tensors[layer] = larger
