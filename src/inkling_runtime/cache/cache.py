"""Who owns which block and which state slot: admission, growth, prefixes, return.

Bookkeeping on the host: `CacheTensors` has the memory. A sequence is admitted only if all that it
can ever need is there, so nothing that runs is ever thrown out and nothing waits for another.
Kept prefixes are given up, the oldest first, where a sequence needs their room.
"""

from collections.abc import Sequence

from inkling_runtime.cache.block_pool import BlockPool
from inkling_runtime.cache.cache_sizes import blocks_for, sliding_blocks_for
from inkling_runtime.cache.cache_tensors import ZERO_SLOT, CacheSizes
from inkling_runtime.cache.prefix_cache import Node, Pools, PrefixCache
from inkling_runtime.cache.sequence_cache import SequenceCache
from inkling_runtime.errors import InklingError

SLOTS_PER_SEQUENCE = 3
"""Convolution slots that a running sequence may own: read, written, and kept within a chunk."""


class Cache:
    """The bookkeeping of a cache.

    Args:
        sizes: its capacity.
        window: tokens that a query of a sliding layer sees, its own included.
        reuse_prefixes: whether what was computed is kept for later sequences.
    """

    def __init__(self, sizes: CacheSizes, window: int, reuse_prefixes: bool = True) -> None:
        self.sizes = sizes
        self.window = window
        self.reuse_prefixes = reuse_prefixes
        self.reset()

    def reset(self) -> None:
        """Forget everything: no sequence runs, no prefix is kept."""
        self.pools = Pools(
            BlockPool(self.sizes.global_blocks),
            BlockPool(self.sizes.sliding_blocks),
            BlockPool(self.sizes.conv_slots - 1, ZERO_SLOT + 1),
        )
        self.prefixes = PrefixCache(self.pools, self.sizes.block_size)
        self._sliding_reserved = 0
        self._num_sequences = 0

    @property
    def num_used_blocks(self) -> int:
        """Blocks that running sequences own, of both kinds."""
        return self.pools.global_blocks.num_used + self.pools.sliding_blocks.num_used

    def require_fits(self, max_length: int, max_chunk: int) -> None:
        """Require that a sequence of so many tokens fits an empty cache.

        Raises:
            InklingError: it does not.
        """
        size = self.sizes.block_size
        sliding = sliding_blocks_for(max_length, max_chunk, self.window, size)
        for kind, needed, capacity in (
            ("global", blocks_for(max_length, size), self.sizes.global_blocks),
            ("sliding", sliding, self.sizes.sliding_blocks),
        ):
            if needed > capacity:
                raise InklingError(
                    f"{max_length} tokens need {needed} blocks of {size} tokens in {kind} layers, "
                    f"the cache has {capacity}",
                    "ask for fewer tokens, or give the cache more memory with `cache_memory`",
                )

    def admit(
        self,
        content: str | None,
        token_ids: Sequence[int],
        max_length: int,
        max_chunk: int,
        *,
        may_skip: bool = True,
    ) -> SequenceCache | None:
        """Return the cache of a new sequence, or None as long as there is no room for it.

        Args:
            content: content hash of its adapter, None for the base model.
            token_ids: its prompt.
            max_length: tokens that it can have in the end.
            max_chunk: tokens of it that a step may compute.
            may_skip: whether it may begin after tokens that were computed before.
        """
        size = self.sizes.block_size
        reserve = sliding_blocks_for(max_length, max_chunk, self.window, size)
        slots = SLOTS_PER_SEQUENCE * (self._num_sequences + 1)
        if self._sliding_reserved + reserve > self.pools.sliding_blocks.capacity:
            return None
        if slots > self.pools.conv_slots.capacity:
            return None
        hit = self.prefixes.find(content, token_ids) if may_skip and self.reuse_prefixes else None
        shared = hit.blocks() if hit else []
        pool = self.pools.global_blocks
        used = sum(pool.is_used(block) for block in shared)
        if blocks_for(max_length, size) - used > pool.num_available:
            return None
        self._sliding_reserved += reserve
        self._num_sequences += 1
        sequence = SequenceCache(content, ZERO_SLOT, ZERO_SLOT, reserve)
        if hit is not None:
            self._resume(sequence, hit, shared)
        missing = blocks_for(max_length, size) - len(shared)
        new = self._allocate(pool, missing, shared[-1] if shared else None)
        sequence.global_table.blocks = (*shared, *new)
        (sequence.write_slot,) = self._allocate(self.pools.conv_slots, 1)
        return sequence

    def begin(self, sequence: SequenceCache, begin: int, end: int, num_prompt: int) -> None:
        """Give a sequence room for the positions [begin, end), which the next step computes.

        Where the step passes the end of a block within the prompt, the state there is to be
        written, too (`SequenceCache.pending`).
        """
        table, size = sequence.sliding_table, self.sizes.block_size
        missing = -(-(end - table.start) // size) - len(table.blocks)
        if missing > 0:
            after = table.blocks[-1] if table.blocks else None
            new = self._allocate(self.pools.sliding_blocks, missing, after)
            table.blocks = (*table.blocks, *new)
        self._forget_pending(sequence)
        # A prompt that comes again must compute its last token, so its very end is of no use.
        boundary = (num_prompt - 1 if end >= num_prompt else end) // size * size
        if self.reuse_prefixes and begin < boundary < end:
            (slot,) = self._allocate(self.pools.conv_slots, 1)
            sequence.pending = boundary, slot

    def commit(
        self, sequence: SequenceCache, token_ids: Sequence[int], end: int, num_prompt: int
    ) -> None:
        """Take note that the positions below `end` are computed.

        Keeps the prefix where a state for it exists, gives back what no later query sees, and
        makes the written convolution slot the one to be read.
        """
        if sequence.pending is not None:
            self._keep(sequence, token_ids, *sequence.pending, end <= num_prompt)
            self._forget_pending(sequence)
        if self.reuse_prefixes and end % self.sizes.block_size == 0:
            self._keep(sequence, token_ids, end, sequence.write_slot, end <= num_prompt)
        self._trim(sequence, end)
        self._swap_slots(sequence)

    def release(self, sequence: SequenceCache) -> None:
        """Take back everything that a sequence owns; prefixes that are kept stay."""
        self._forget_pending(sequence)
        self.pools.global_blocks.release(sequence.global_table.blocks)
        self.pools.sliding_blocks.release(sequence.sliding_table.blocks)
        slots = (sequence.read_slot, sequence.write_slot)
        self.pools.conv_slots.release(slot for slot in slots if slot != ZERO_SLOT)
        self._sliding_reserved -= sequence.sliding_reserve
        self._num_sequences -= 1

    def _resume(self, sequence: SequenceCache, hit: Node, shared: Sequence[int]) -> None:
        """Let a new sequence own what a prefix keeps; nothing of it can be given up from now."""
        assert hit.point is not None
        size, point = self.sizes.block_size, hit.point
        sequence.node = hit
        sequence.num_reused = hit.depth * size
        sequence.read_slot = point.conv_slot
        sequence.sliding_table.blocks = point.sliding_blocks
        sequence.sliding_table.start = (hit.depth - len(point.sliding_blocks)) * size
        self.pools.global_blocks.use(shared)
        self.pools.sliding_blocks.use(point.sliding_blocks)
        self.pools.conv_slots.use([point.conv_slot])

    def _keep(
        self,
        sequence: SequenceCache,
        token_ids: Sequence[int],
        position: int,
        slot: int,
        is_prompt: bool,
    ) -> None:
        """Keep the prefix of `position` tokens, whose state is in `slot`.

        Of the points that an answer makes only the last stays, unless one was used meanwhile.
        """
        size = self.sizes.block_size
        node = self.prefixes.extend(
            sequence.content,
            sequence.node,
            token_ids,
            sequence.global_table.blocks,
            position // size,
        )
        sequence.node = node
        if node.point is not None:
            self.prefixes.touch(node)
            return
        table = sequence.sliding_table
        first = max(position - self.window + 1, 0) // size - table.start // size
        self.prefixes.set_point(node, slot, table.blocks[first : (position - table.start) // size])
        if is_prompt:
            return
        before, sequence.answer_node = sequence.answer_node, node
        if before is not None and before.point is not None and before.point.num_hits == 0:
            self.prefixes.remove_point(before)

    def _trim(self, sequence: SequenceCache, position: int) -> None:
        """Give back the sliding blocks that no query at `position` or later can see."""
        table, size = sequence.sliding_table, self.sizes.block_size
        count = max(position - self.window + 1 - table.start, 0) // size
        if count:
            self.pools.sliding_blocks.release(table.blocks[:count])
            table.blocks = table.blocks[count:]
            table.start += count * size

    def _swap_slots(self, sequence: SequenceCache) -> None:
        """Read what was written; write where was read, unless a prefix keeps that."""
        old, slots = sequence.read_slot, self.pools.conv_slots
        sequence.read_slot = sequence.write_slot
        if old == ZERO_SLOT or slots.is_kept(old):
            if old != ZERO_SLOT:
                slots.release([old])
            (old,) = self._allocate(slots, 1)
        sequence.write_slot = old

    def _forget_pending(self, sequence: SequenceCache) -> None:
        if sequence.pending is not None:
            self.pools.conv_slots.release([sequence.pending[1]])
            sequence.pending = None

    def _allocate(self, pool: BlockPool, count: int, after: int | None = None) -> list[int]:
        """Return free blocks, giving up the oldest prefixes for them."""
        while pool.num_free < count and self.prefixes.evict():
            pass
        return pool.allocate(count, after)
