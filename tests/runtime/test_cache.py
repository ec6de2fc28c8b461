import pytest
import torch
from tiny_models import TEXT

from inkling_runtime.adapter.model_spec import parse_model_spec
from inkling_runtime.cache.block_pool import BlockPool
from inkling_runtime.cache.kv_blocks import BlockTable, KVBlocks
from inkling_runtime.cache.model_cache import ModelCache

CPU = torch.device("cpu")
SPEC = parse_model_spec({"model_type": "inkling_text", **TEXT})


def kv_blocks(window: int | None = None) -> KVBlocks:
    return KVBlocks(2, (3, 5), 4, window, CPU, torch.float32)


def test_the_pool_prefers_neighbours_and_reuses_what_came_back() -> None:
    pool = BlockPool()
    pool.grow(6)
    assert pool.allocate(2) == [0, 1]
    assert pool.allocate(1) == [2]
    assert pool.allocate(2, after=1) == [3, 4]
    pool.free([0, 2])
    assert pool.num_free == 3
    assert pool.allocate(3, after=1) == [2, 0, 5]


def test_the_pool_refuses_more_than_it_has() -> None:
    pool = BlockPool()
    pool.grow(2)
    with pytest.raises(ValueError, match="3 blocks asked for, 2 are free"):
        pool.allocate(3)


def test_growing_keeps_what_was_written() -> None:
    blocks, table = kv_blocks(), BlockTable()
    blocks.extend(table, 4)
    blocks.keys[1][table.blocks[0]] = 7.0
    blocks.extend(table, 40)
    assert torch.equal(blocks.keys[1][table.blocks[0]], torch.full((4, 3, 5), 7.0))
    assert len(table.blocks) == 10
    assert table.is_run


def test_trimming_gives_back_only_blocks_that_no_query_sees() -> None:
    blocks, table = kv_blocks(window=6), BlockTable()
    blocks.extend(table, 12)
    blocks.trim(table, 8)
    assert (table.start, len(table.blocks)) == (0, 3)
    blocks.trim(table, 9)
    assert (table.start, len(table.blocks)) == (4, 2)
    blocks.trim(table, 12)
    assert (table.start, len(table.blocks)) == (4, 2)


def test_a_layout_says_where_new_tokens_go_and_where_the_keys_are() -> None:
    blocks, first, second = kv_blocks(), BlockTable(), BlockTable()
    blocks.extend(first, 3)
    blocks.extend(second, 5)
    blocks.extend(first, 6)
    layout = blocks.layout([first, second], [(3, 6), (4, 5)])
    assert first.blocks == [0, 3]
    assert layout.slot_mapping.tolist() == [3, 12, 13, 8]
    assert layout.block_table.tolist() == [[0, 3], [1, 2]]
    assert layout.first_blocks == (None, 1)
    assert (layout.starts, layout.lengths) == ((0, 0), (6, 5))


def test_sliding_layers_keep_no_more_than_their_window_and_a_chunk() -> None:
    cache = ModelCache(SPEC, CPU, torch.float32, block_size=4)
    sequence = cache.open()
    for position in range(300):
        cache.extend(sequence, position, position + 1, 300)
        rows = 4 * len(sequence.sliding_table.blocks)
        assert rows <= SPEC.sliding_window + 2 * 4
    assert len(sequence.global_table.blocks) == 75


def test_closing_gives_everything_back_and_a_new_sequence_starts_from_zeros() -> None:
    cache = ModelCache(SPEC, CPU, torch.float32)
    sequence = cache.open()
    cache.extend(sequence, 0, 100, 100)
    slot = sequence.conv_slot
    for layer in cache.layers():
        for tensor in (layer.conv.k, layer.conv.v, layer.conv.attn, layer.conv.mlp):
            tensor[slot] = 1.0
    cache.close(sequence)
    assert cache.num_used_blocks == 0
    again = cache.open()
    assert again.conv_slot == slot
    for layer in cache.layers():
        for tensor in (layer.conv.k, layer.conv.v, layer.conv.attn, layer.conv.mlp):
            assert not tensor[slot].any()


def test_many_sequences_grow_the_states_without_losing_any() -> None:
    cache = ModelCache(SPEC, CPU, torch.float32)
    sequences = []
    for index in range(10):
        sequences.append(cache.open())
        cache.layers()[2].conv.attn[sequences[-1].conv_slot] = float(index)
    states = cache.layers()[2].conv.attn
    values = [states[sequence.conv_slot, 0, 0].item() for sequence in sequences]
    assert values == list(range(10))
