"""Who owns which block and slot: the pool, admission, windows, and prefixes that are kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inkling_runtime.cache.block_pool import BlockPool
from inkling_runtime.cache.cache import Cache
from inkling_runtime.cache.cache_sizes import blocks_for, sliding_blocks_for
from inkling_runtime.cache.cache_tensors import ZERO_SLOT, CacheSizes
from inkling_runtime.cache.sequence_cache import SequenceCache
from inkling_runtime.errors import InklingError

SIZE, WINDOW, CHUNK = 4, 6, 10


def make_cache(blocks: int = 100, slots: int = 40, sliding: int = 100) -> Cache:
    return Cache(CacheSizes(blocks, sliding, slots, SIZE), WINDOW)


def admit(
    cache: Cache, ids: list[int], max_length: int, content: str | None = None
) -> SequenceCache:
    sequence = cache.admit(content, ids, max_length, CHUNK)
    assert sequence is not None
    return sequence


def compute(cache: Cache, sequence: SequenceCache, ids: list[int], prompt: int, chunk: int) -> None:
    """Do what steps do with a sequence: first the prompt in chunks, then token by token."""
    begin = sequence.num_reused
    while begin < len(ids):
        end = min(begin + chunk, prompt) if begin < prompt else begin + 1
        cache.begin(sequence, begin, end, prompt)
        cache.commit(sequence, ids[:end], end, prompt)
        begin = end


def run(cache: Cache, ids: list[int], prompt: int, chunk: int = CHUNK) -> int:
    """Run a sequence from admission to release and return how many tokens it did not compute."""
    sequence = admit(cache, ids[:prompt], len(ids))
    compute(cache, sequence, ids, prompt, chunk)
    cache.release(sequence)
    return sequence.num_reused


def test_the_pool_prefers_neighbours_and_reuses_what_came_back() -> None:
    pool = BlockPool(6)
    assert pool.allocate(2) == [0, 1]
    assert pool.allocate(1) == [2]
    assert pool.allocate(2, after=2) == [3, 4]
    pool.release([0, 3])
    assert pool.num_free == 3
    assert pool.allocate(3, after=2) == [3, 0, 5]


def test_the_pool_refuses_more_than_it_has() -> None:
    pool = BlockPool(2, first=1)
    assert pool.allocate(2) == [1, 2]
    with pytest.raises(ValueError, match="1 blocks asked for, 0 are free"):
        pool.allocate(1)


@given(st.integers(1, 9), st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 12)), max_size=40))
def test_the_pool_hands_out_each_of_its_blocks_once(
    capacity: int, calls: list[tuple[int, int]]
) -> None:
    pool, owned = BlockPool(capacity, first=1), []
    for count, after in calls:
        if count > pool.num_free:
            pool.release(owned[:count])
            del owned[:count]
        else:
            owned += pool.allocate(count, after if after >= 0 else None)
        assert sorted({*owned}) == sorted(owned)
        assert set(owned) <= set(range(1, capacity + 1))
        assert (pool.num_used, pool.num_free) == (len(owned), capacity - len(owned))


def test_a_block_is_free_once_it_has_neither_user_nor_keeper() -> None:
    pool = BlockPool(3)
    (block,) = pool.allocate(1)
    pool.use([block])
    pool.keep([block])
    pool.release([block])
    assert (pool.num_used, pool.num_free, pool.num_available) == (1, 2, 2)
    pool.release([block])
    assert (pool.num_used, pool.num_free, pool.num_available) == (0, 2, 3)
    assert pool.is_kept(block)
    pool.drop([block])
    assert pool.num_free == 3


@given(st.integers(1, 40), st.integers(0, 40), st.integers(1, CHUNK), st.integers(1, 17))
def test_between_steps_a_sliding_layer_owns_its_window_and_no_more(
    prompt: int, more: int, chunk: int, window: int
) -> None:
    cache = Cache(CacheSizes(100, 100, 40, SIZE), window)
    ids = list(range(prompt + more))
    sequence = cache.admit(None, ids[:prompt], len(ids), chunk)
    assert sequence is not None
    begin, table = 0, sequence.sliding_table
    while begin < len(ids):
        end = min(begin + chunk, prompt) if begin < prompt else begin + 1
        cache.begin(sequence, begin, end, prompt)
        assert table.start <= max(begin - window + 1, 0)
        assert table.start + SIZE * len(table.blocks) >= end
        assert len(table.blocks) <= sequence.sliding_reserve
        cache.commit(sequence, ids[:end], end, prompt)
        assert len(table.blocks) <= blocks_for(window - 1, SIZE) + 1
        begin = end
    cache.release(sequence)
    assert cache.num_used_blocks == 0


def test_a_new_sequence_reads_the_zero_state_and_writes_its_own() -> None:
    cache = make_cache()
    sequence = admit(cache, [1, 2, 3], 9)
    assert sequence.read_slot == ZERO_SLOT != sequence.write_slot
    first = sequence.write_slot
    cache.begin(sequence, 0, 3, 3)
    cache.commit(sequence, [1, 2, 3], 3, 3)
    assert sequence.read_slot == first != sequence.write_slot != ZERO_SLOT


def test_a_step_that_is_taken_back_leaves_the_state_to_be_read() -> None:
    cache = make_cache()
    sequence = admit(cache, list(range(9)), 20)
    for _ in range(3):
        cache.begin(sequence, 0, 9, 9)
        assert sequence.pending is not None
    before = cache.pools.conv_slots.num_used
    cache.begin(sequence, 0, 5, 9)
    assert cache.pools.conv_slots.num_used == before
    assert sequence.read_slot == ZERO_SLOT


def test_all_that_a_sequence_can_need_is_there_before_it_runs() -> None:
    cache = make_cache(blocks=5)
    first = admit(cache, [1, 2], 3 * SIZE)
    assert cache.admit(None, [3], 3 * SIZE, CHUNK) is None
    second = admit(cache, [3], 2 * SIZE)
    cache.release(first)
    admit(cache, [3], 3 * SIZE)
    cache.release(second)


@pytest.mark.parametrize("short", [{"sliding": 9}, {"slots": 9}], ids=str)
def test_sliding_blocks_and_slots_are_set_aside_too(short: dict[str, int]) -> None:
    cache = make_cache(**short)
    assert sliding_blocks_for(99, CHUNK, WINDOW, SIZE) == 5
    running = [cache.admit(None, [i], 30, CHUNK) for i in range(3)]
    assert [one is not None for one in running] == [True, "slots" in short, False]


def test_a_sequence_that_never_fits_is_refused_with_the_numbers() -> None:
    for cache, message in (
        (
            make_cache(blocks=7),
            "30 tokens need 8 blocks of 4 tokens in global layers, the cache has 7",
        ),
        (
            make_cache(sliding=4),
            "30 tokens need 5 blocks of 4 tokens in sliding layers, the cache has 4",
        ),
    ):
        with pytest.raises(InklingError) as caught:
            cache.require_fits(30, CHUNK)
        assert caught.value.message == message
        cache.require_fits(16, 3)


def test_a_prompt_that_comes_again_computes_its_last_block_only() -> None:
    cache = make_cache()
    ids = list(range(16))
    assert [run(cache, ids, 16) for _ in range(2)] == [0, 12]
    assert run(cache, [*ids, 99], 17) == 16


def test_prompts_share_what_they_begin_with() -> None:
    cache = make_cache()
    run(cache, list(range(16)), 16, chunk=8)
    assert run(cache, [*range(8), 77, 78], 10) == 8
    assert run(cache, [*range(7), 77, 78, 79], 10) == 0
    assert run(cache, list(range(8)), 8) == 0


def test_a_conversation_goes_on_after_the_answer() -> None:
    cache = make_cache()
    ids = list(range(30))
    run(cache, ids, 10)
    assert run(cache, [*ids, 50, 51, 52], 33) == 28


def test_of_an_answer_only_the_last_point_is_kept() -> None:
    cache = make_cache()
    run(cache, list(range(5)), 5)
    kept = len(cache.prefixes)
    run(cache, list(range(70, 110)), 5)
    assert len(cache.prefixes) == kept + 2


def test_other_contents_share_nothing() -> None:
    cache = make_cache()
    ids = list(range(9))
    run(cache, ids, 9)
    assert admit(cache, ids, 9, "another content").num_reused == 0
    assert admit(cache, ids, 9).num_reused == 8


def test_a_sequence_whose_whole_prompt_is_told_skips_none_of_it() -> None:
    cache = make_cache()
    run(cache, list(range(9)), 9)
    sequence = cache.admit(None, list(range(9)), 9, CHUNK, may_skip=False)
    assert sequence is not None
    assert sequence.num_reused == 0


def test_a_resumed_sequence_has_the_window_and_the_state_of_the_one_before() -> None:
    cache = make_cache()
    first = admit(cache, list(range(21)), 30)
    cache.begin(first, 0, 10, 21)
    cache.commit(first, list(range(10)), 10, 21)
    cache.begin(first, 10, 20, 21)
    tables = (first.global_table.blocks, first.sliding_table.blocks, first.sliding_table.start)
    written = first.write_slot
    cache.commit(first, list(range(20)), 20, 21)
    second = admit(cache, list(range(21)), 30)
    assert second.num_reused == 20
    assert second.read_slot == first.read_slot == written
    assert second.write_slot not in (written, first.write_slot)
    assert second.global_table.blocks[:5] == tables[0][:5]
    assert second.sliding_table.start == 12
    assert second.sliding_table.blocks == tables[1][(12 - tables[2]) // SIZE :]


def test_the_prefix_that_was_not_used_for_longest_is_given_up_first() -> None:
    cache = make_cache(blocks=9)
    one, two = list(range(9)), list(range(50, 59))
    run(cache, one, 9)
    run(cache, two, 9)
    assert run(cache, one, 9) == 8
    run(cache, list(range(80, 100)), 20)
    assert run(cache, one, 9) == 8
    assert run(cache, two, 9) == 0


def test_kept_prefixes_never_stand_in_the_way_of_a_sequence() -> None:
    cache = make_cache(blocks=8, slots=7, sliding=12)
    for start in range(0, 400, 40):
        ids = list(range(start, start + 32))
        run(cache, ids, 11)
        assert len(cache.prefixes) > 0
    assert cache.num_used_blocks == 0


@given(st.data())
def test_nothing_is_lost_or_owned_twice_whatever_comes(data: st.DataObject) -> None:
    cache = make_cache(blocks=24, slots=13, sliding=16)
    running: list[tuple[SequenceCache, list[int], int]] = []
    for _ in range(data.draw(st.integers(1, 30))):
        if data.draw(st.booleans()):
            prompt = data.draw(st.integers(1, 24))
            ids = [data.draw(st.integers(0, 1)) for _ in range(0, prompt, SIZE)]
            ids = [i for i in ids for _ in range(SIZE)][:prompt]
            total = prompt + data.draw(st.integers(0, 9))
            sequence = cache.admit(None, ids, total, CHUNK)
            if sequence is not None:
                running.append((sequence, ids + [2] * (total - prompt), prompt))
        elif running:
            sequence, ids, prompt = running.pop(data.draw(st.integers(0, len(running) - 1)))
            compute(cache, sequence, ids, prompt, data.draw(st.integers(1, CHUNK)))
            cache.release(sequence)
        writing = [sequence.write_slot for sequence, _, _ in running]
        assert len(set(writing)) == len(writing)
        assert not any(cache.pools.conv_slots.is_kept(slot) for slot in writing)
    for sequence, _, _ in running:
        cache.release(sequence)
    assert cache.num_used_blocks == 0
    while cache.prefixes.evict():
        pass
    for pool in (cache.pools.global_blocks, cache.pools.sliding_blocks, cache.pools.conv_slots):
        assert pool.num_free == pool.capacity
