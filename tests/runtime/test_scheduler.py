"""The decision how many tokens of each sequence a step computes, on plain numbers."""

from hypothesis import given
from hypothesis import strategies as st

from inkling_runtime.engine.scheduler import Progress, plan_chunks


def test_sequences_that_generate_go_first_and_prompts_share_the_rest_in_order() -> None:
    sequences = [Progress(0, 9), Progress(4, 5), Progress(2, 4), Progress(7, 8)]
    assert plan_chunks(sequences, 7, block_size=64) == [5, 1, 0, 1]
    assert plan_chunks(sequences, 12, block_size=64) == [8 + 1, 1, 1, 1]
    assert plan_chunks(sequences, 1, block_size=64) == [0, 1, 0, 0]


def test_a_chunk_ends_with_a_block_where_that_costs_no_step() -> None:
    assert plan_chunks([Progress(0, 21)], 12, block_size=8) == [12]
    assert plan_chunks([Progress(0, 19)], 12, block_size=8) == [8]
    assert plan_chunks([Progress(8, 19)], 12, block_size=8) == [11]
    assert plan_chunks([Progress(3, 19)], 12, block_size=8) == [5]
    assert plan_chunks([Progress(0, 19)], 5, block_size=8) == [5]


PROGRESS = st.builds(
    lambda computed, pending: Progress(computed, computed + pending),
    st.integers(0, 50),
    st.integers(1, 60),
)


@given(st.lists(PROGRESS, max_size=9), st.integers(1, 40), st.integers(1, 16))
def test_a_step_is_full_or_has_all_there_is_and_never_gives_more(
    sequences: list[Progress], most: int, block_size: int
) -> None:
    counts = plan_chunks(sequences, most, block_size)
    pending = [sequence.length - sequence.computed for sequence in sequences]
    assert all(0 <= count <= left for count, left in zip(counts, pending, strict=True))
    assert sum(counts) <= most
    if sequences:
        assert any(counts)
    for sequence, count, left in zip(sequences, counts, pending, strict=True):
        if 0 < count < left and sum(counts) < most:
            assert (sequence.computed + count) % block_size == 0


@given(PROGRESS, st.integers(1, 40), st.integers(1, 16))
def test_a_prompt_takes_no_more_steps_than_without_blocks(
    progress: Progress, most: int, block_size: int
) -> None:
    computed, length = progress
    steps = 0
    while computed < length:
        (count,) = plan_chunks([Progress(computed, length)], most, block_size)
        computed += count
        steps += 1
    assert steps == -(-(length - progress.computed) // most)
