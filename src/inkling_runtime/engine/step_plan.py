"""From the chunks of a step to the plain numbers that an executor gets."""

from collections.abc import Sequence
from itertools import chain

from inkling_runtime.cache.sequence_cache import BlockTable, SequenceCache
from inkling_runtime.engine.sequence import Chunk
from inkling_runtime.engine.step_input import KeyPlaces, StepInput


def make_step_input(chunks: Sequence[Chunk], block_size: int) -> StepInput:
    """Return the input of a step; every sequence has a cache with room for its chunk."""
    caches = [_cache_of(chunk) for chunk in chunks]
    return StepInput(
        token_ids=tuple(chain.from_iterable(c.sequence.token_ids[c.begin : c.end] for c in chunks)),
        lengths=tuple(chunk.num_tokens for chunk in chunks),
        adapters=tuple(chunk.sequence.adapter for chunk in chunks),
        conv_reads=tuple(cache.read_slot for cache in caches),
        conv_writes=tuple(cache.write_slot for cache in caches),
        conv_points=tuple(
            (cache.pending[1], index, cache.pending[0] - chunk.begin)
            for index, (cache, chunk) in enumerate(zip(caches, chunks, strict=True))
            if cache.pending is not None
        ),
        global_keys=_key_places(chunks, [cache.global_table for cache in caches], block_size),
        sliding_keys=_key_places(chunks, [cache.sliding_table for cache in caches], block_size),
    )


def _key_places(
    chunks: Sequence[Chunk], tables: Sequence[BlockTable], block_size: int
) -> KeyPlaces:
    return KeyPlaces(
        blocks=tuple(table.blocks for table in tables),
        starts=tuple(table.start for table in tables),
        lengths=tuple(chunk.end for chunk in chunks),
        slot_mapping=tuple(
            chain.from_iterable(
                table.slots(chunk.begin, chunk.end, block_size)
                for table, chunk in zip(tables, chunks, strict=True)
            )
        ),
    )


def _cache_of(chunk: Chunk) -> SequenceCache:
    cache = chunk.sequence.cache
    assert cache is not None
    return cache
