"""What one running sequence owns of the cache."""

from dataclasses import dataclass, field

from inkling_runtime.cache.prefix_cache import Node


@dataclass(slots=True)
class BlockTable:
    """The blocks of one sequence in layers of one kind, in the order of positions."""

    blocks: tuple[int, ...] = ()
    """Another tuple after every change, so that who made tensors of it sees whether it changed."""
    start: int = 0
    """Position of the first row of the first block."""

    def slots(self, begin: int, end: int, block_size: int) -> list[int]:
        """Return the rows block · block_size + offset of the positions [begin, end)."""
        offsets = range(begin - self.start, end - self.start)
        return [self.blocks[o // block_size] * block_size + o % block_size for o in offsets]


@dataclass(slots=True)
class SequenceCache:
    """Blocks and convolution slots of one sequence.

    A step reads one convolution slot and writes another: a step that ends in an error leaves the
    sequence as it was, and it can be computed again.
    """

    content: str | None
    """Content hash of its adapter, None for the base model: whose prefixes it may share."""
    read_slot: int
    write_slot: int
    sliding_reserve: int
    """Sliding blocks that it may come to own at a time."""
    num_reused: int = 0
    """Tokens at the beginning that need not be computed."""
    global_table: BlockTable = field(default_factory=BlockTable)
    sliding_table: BlockTable = field(default_factory=BlockTable)
    node: Node | None = None
    """How far its tokens are in the tree of prefixes."""
    answer_node: Node | None = None
    """The node of the last point that its generated tokens made."""
    pending: tuple[int, int] | None = None
    """A further state that the step writes: (position, convolution slot)."""
