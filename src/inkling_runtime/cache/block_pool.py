"""Which blocks (or state slots) of a cache are free, in use, or merely kept.

Numbers only: the tensors belong to who asks. Users are running sequences, keepers are cached
prefixes. What is only kept can be had by dropping it, so it never stands in the way of a user.
"""

import heapq
from collections import Counter
from collections.abc import Iterable


class BlockPool:
    """The numbers from `first` on, `capacity` of them.

    Args:
        capacity: how many there are.
        first: the smallest.
    """

    def __init__(self, capacity: int, first: int = 0) -> None:
        self.capacity = capacity
        self._fresh, self._end = first, first + capacity
        self._returned: set[int] = set()
        self._lowest: list[int] = []
        self._users: Counter[int] = Counter()
        self._keepers: Counter[int] = Counter()

    @property
    def num_free(self) -> int:
        """How many can be allocated at once."""
        return self._end - self._fresh + len(self._returned)

    @property
    def num_used(self) -> int:
        """How many have a user."""
        return len(self._users)

    @property
    def num_available(self) -> int:
        """How many can be had if all that is merely kept is dropped."""
        return self.capacity - len(self._users)

    def is_used(self, block: int) -> bool:
        """Whether a block has a user."""
        return block in self._users

    def is_kept(self, block: int) -> bool:
        """Whether a block has a keeper."""
        return block in self._keepers

    def allocate(self, count: int, after: int | None = None) -> list[int]:
        """Return `count` free blocks, a user each, following block `after` as far as possible.

        Attention reads neighbouring blocks without a copy. The caller makes sure that enough
        blocks are free.
        """
        if count > self.num_free:
            raise ValueError(f"{count} blocks asked for, {self.num_free} are free")
        blocks: list[int] = []
        while len(blocks) < count:
            after = self._take(None if after is None else after + 1)
            blocks.append(after)
            self._users[after] = 1
        return blocks

    def use(self, blocks: Iterable[int]) -> None:
        """Add a user to blocks that are used or kept."""
        self._users.update(blocks)

    def release(self, blocks: Iterable[int]) -> None:
        """Undo one `allocate` or `use`."""
        self._take_back(blocks, self._users, self._keepers)

    def keep(self, blocks: Iterable[int]) -> None:
        """Add a keeper to blocks that are used or kept."""
        self._keepers.update(blocks)

    def drop(self, blocks: Iterable[int]) -> None:
        """Undo one `keep`."""
        self._take_back(blocks, self._keepers, self._users)

    def _take_back(self, blocks: Iterable[int], counts: Counter[int], others: Counter[int]) -> None:
        for block in blocks:
            if counts[block] > 1:
                counts[block] -= 1
                continue
            del counts[block]
            if block not in others:
                self._returned.add(block)
                heapq.heappush(self._lowest, block)

    def _take(self, wanted: int | None) -> int:
        """Return a free block: the wanted one, else the lowest that came back, else a new one."""
        if wanted in self._returned:
            self._returned.discard(wanted)
            return wanted
        is_next = wanted == self._fresh < self._end
        while self._lowest and not is_next:
            block = heapq.heappop(self._lowest)
            if block in self._returned:  # the heap also holds blocks handed out meanwhile
                self._returned.discard(block)
                return block
        self._fresh += 1
        return self._fresh - 1
