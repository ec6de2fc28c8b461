"""Where the keys of each sequence of a batch lie in the block cache.

Sliding layers and global layers have one layout each: a sliding layer may have given back the
blocks that its window has left behind, so its first block does not start at position 0.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class KeyLayout:
    """Cache places of B sequences, the tokens of this step included."""

    slot_mapping: Tensor
    """int64 [T]: the row block · block_size + offset that each new token writes."""
    block_table: Tensor
    """int64 [B, M]: the blocks of each sequence in the order of positions, padded with 0."""
    first_blocks: tuple[int | None, ...]
    """On the host: a sequence's first block if its blocks follow one another, else None."""
    starts: tuple[int, ...]
    """On the host: the position of the first row of each sequence's first block."""
    lengths: tuple[int, ...]
    """On the host: tokens of each sequence so far, those of this step and dropped ones included."""
    starts_device: Tensor
    """`starts` on the device, int32 [B]."""
    lengths_device: Tensor
    """`lengths` on the device, int32 [B]."""
