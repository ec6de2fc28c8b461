"""How much a cache shall hold: from a model, a device's memory and what runs at a time.

Numbers only. Sliding layers and convolutions need a fixed part for each sequence that runs, global
layers a part for each token, so the first is set aside and the rest is blocks of global layers.
"""

from dataclasses import dataclass

from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.cache.cache_tensors import CacheSizes
from inkling_runtime.errors import InklingError

_SLOTS = 6
"""Convolution slots per sequence that runs at a time: three of its own, three of prefixes."""


@dataclass(frozen=True, slots=True)
class CacheNeeds:
    """What runs at a time, and in which portions."""

    max_sequences: int
    max_chunk: int
    """Tokens of a sequence that one step may compute."""
    block_size: int
    bytes_per_number: int


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Return how many blocks hold so many tokens."""
    return -(-num_tokens // block_size)


def sliding_blocks_for(max_length: int, max_chunk: int, window: int, block_size: int) -> int:
    """Return how many sliding blocks a sequence owns at most: a window, a chunk, and a rest."""
    whole = blocks_for(max_length, block_size)
    return min(whole, blocks_for(window - 1 + max_chunk, block_size) + 1)


def plan_cache_sizes(spec: ModelSpec, needs: CacheNeeds, budget: int) -> CacheSizes:
    """Return the capacity of a cache of at most `budget` bytes, never more than is of use.

    Raises:
        InklingError: the budget is too small for one sequence of one block.
    """
    size, count = needs.block_size, needs.max_sequences
    window = spec.sliding_window
    per_sequence = sliding_blocks_for(spec.max_positions, needs.max_chunk, window, size)
    per_sequence += blocks_for(window, size)  # what a kept prefix needs
    global_bytes, sliding_bytes = (_block_bytes(spec, needs, kind) for kind in (False, True))
    fixed = per_sequence * sliding_bytes + _SLOTS * _slot_bytes(spec, needs)
    longest = blocks_for(spec.max_positions, size)
    nothing = cache_bytes(spec, needs, CacheSizes(0, 0, 1, size))
    smallest = nothing + fixed + global_bytes
    if budget < smallest:
        raise InklingError(
            f"cache_memory is {budget} bytes, one sequence needs at least {smallest}",
            "give the cache more memory, or lower `max_batch_tokens`",
        )
    if nothing + count * (fixed + longest * global_bytes) > budget:
        count = min(count, max(1, budget // 2 // fixed))
    rest = budget - nothing - count * fixed
    global_blocks = needs.max_sequences * longest
    if global_bytes:
        global_blocks = min(global_blocks, max(1, rest // global_bytes))
    return CacheSizes(
        global_blocks=global_blocks,
        sliding_blocks=count * per_sequence,
        conv_slots=1 + count * _SLOTS,
        block_size=size,
    )


def cache_bytes(spec: ModelSpec, needs: CacheNeeds, sizes: CacheSizes) -> int:
    """Return the bytes of a cache of these sizes, its scratch places included."""
    return (
        (sizes.global_blocks + 1) * _block_bytes(spec, needs, False)
        + (sizes.sliding_blocks + 1) * _block_bytes(spec, needs, True)
        + (sizes.conv_slots + 1) * _slot_bytes(spec, needs)
    )


def _block_bytes(spec: ModelSpec, needs: CacheNeeds, sliding: bool) -> int:
    """Return the bytes of one block in all layers of a kind: keys and values."""
    layers = [layer for layer in spec.layers if layer.is_sliding is sliding]
    widths = [layer.num_kv_heads * layer.head_dim for layer in layers]
    return 2 * sum(widths) * needs.block_size * needs.bytes_per_number


def _slot_bytes(spec: ModelSpec, needs: CacheNeeds) -> int:
    """Return the bytes of one convolution slot: k, v and two branch outputs of every layer."""
    widths = [2 * (layer.num_kv_heads * layer.head_dim + spec.hidden_size) for layer in spec.layers]
    return sum(widths) * (spec.conv_kernel_size - 1) * needs.bytes_per_number
