"""Which blocks of a cache are free. Numbers only: the tensors belong to who asks."""

import heapq
from collections.abc import Iterable


class BlockPool:
    """Hands out block numbers, neighbours where it can, and takes them back."""

    def __init__(self) -> None:
        self.capacity = 0
        self._free: set[int] = set()
        self._lowest: list[int] = []

    def grow(self, capacity: int) -> None:
        """Add the blocks from the present capacity up to the new one."""
        self.free(range(self.capacity, capacity))
        self.capacity = capacity

    @property
    def num_free(self) -> int:
        """How many blocks are free."""
        return len(self._free)

    def allocate(self, count: int, after: int | None = None) -> list[int]:
        """Return `count` free blocks, following block `after` as far as its successors are free.

        Attention reads neighbouring blocks without a copy. The caller makes sure that enough
        blocks are free.
        """
        if count > len(self._free):
            raise ValueError(f"{count} blocks asked for, {len(self._free)} are free")
        blocks: list[int] = []
        while len(blocks) < count:
            block = -1 if after is None else after + 1
            if block not in self._free:
                block = self._pop_lowest()
            self._free.discard(block)
            blocks.append(block)
            after = block
        return blocks

    def free(self, blocks: Iterable[int]) -> None:
        """Take blocks back."""
        for block in blocks:
            self._free.add(block)
            heapq.heappush(self._lowest, block)

    def _pop_lowest(self) -> int:
        """Return the lowest free block; the heap may also hold blocks handed out meanwhile."""
        while True:
            block = heapq.heappop(self._lowest)
            if block in self._free:
                return block
