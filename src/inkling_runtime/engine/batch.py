"""From chunks of sequences to the argument of a forward pass."""

from collections.abc import Sequence

import torch

from inkling_runtime.cache.model_cache import ModelCache, SequenceCache
from inkling_runtime.engine.sequence import Chunk
from inkling_runtime.model.batch import Batch
from inkling_runtime.ops.segments import Segments
from inkling_runtime.ops.token_adapters import TokenAdapters


def build_batch(chunks: Sequence[Chunk], cache: ModelCache) -> Batch:
    """Return the batch of these chunks; gives their sequences the cache room that they need."""
    device = cache.device
    owned = [_reserve(chunk, cache) for chunk in chunks]
    token_ids = [t for c in chunks for t in c.sequence.token_ids[c.begin : c.end]]
    adapters = [a for c in chunks for a in [c.sequence.adapter] * c.num_tokens]
    global_keys, sliding_keys = cache.layouts(owned, [(c.begin, c.end) for c in chunks])
    return Batch(
        token_ids=torch.tensor(token_ids, dtype=torch.int64, device=device),
        segments=Segments.from_lengths([chunk.num_tokens for chunk in chunks], device),
        conv_slots=torch.tensor([o.conv_slot for o in owned], dtype=torch.int64, device=device),
        global_keys=global_keys,
        sliding_keys=sliding_keys,
        adapters=TokenAdapters.from_ids(adapters, device),
    )


def _reserve(chunk: Chunk, cache: ModelCache) -> SequenceCache:
    sequence = chunk.sequence
    if sequence.cache is None:
        sequence.cache = cache.open()
    cache.extend(sequence.cache, chunk.begin, chunk.end, sequence.max_length)
    return sequence.cache
