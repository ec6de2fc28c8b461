from inkling_runtime.engine.sampling import SamplingParams
from inkling_runtime.engine.scheduler import Scheduler
from inkling_runtime.engine.sequence import Chunk, Sequence


def sequence(index: int, prompt: int, adapter: int = -1, max_tokens: int = 3) -> Sequence:
    return Sequence(index, [1] * prompt, adapter, SamplingParams(max_tokens=max_tokens))


def compute(chunks: list[Chunk]) -> None:
    """Do what a step does to its sequences, without a model."""
    for chunk in chunks:
        chunk.sequence.num_computed = chunk.end
        if chunk.end == len(chunk.sequence.token_ids):
            chunk.sequence.append(7, -1.0)


def spans(chunks: list[Chunk]) -> list[tuple[int, int, int]]:
    return [(chunk.sequence.index, chunk.begin, chunk.end) for chunk in chunks]


def test_prompts_are_read_in_chunks_and_generating_sequences_go_first() -> None:
    scheduler = Scheduler(max_batch_tokens=5, max_sequences=4)
    for index, prompt in enumerate((3, 9)):
        scheduler.add(sequence(index, prompt))
    steps = []
    while scheduler.has_work:
        chunks = scheduler.plan_step()
        steps.append(spans(chunks))
        compute(chunks)
        scheduler.remove_finished()
    assert steps == [
        [(0, 0, 3), (1, 0, 2)],
        [(0, 3, 4), (1, 2, 6)],
        [(0, 4, 5), (1, 6, 9)],
        [(1, 9, 10)],
        [(1, 10, 11)],
    ]


def test_a_waiting_sequence_takes_the_place_of_a_finished_one() -> None:
    scheduler = Scheduler(max_batch_tokens=8, max_sequences=2)
    for index, max_tokens in enumerate((1, 3, 1)):
        scheduler.add(sequence(index, 2, max_tokens=max_tokens))
    first = scheduler.plan_step()
    assert spans(first) == [(0, 0, 2), (1, 0, 2)]
    compute(first)
    assert [finished.index for finished in scheduler.remove_finished()] == [0]
    assert spans(scheduler.plan_step()) == [(1, 2, 3), (2, 0, 2)]


def test_sequences_of_one_adapter_are_neighbours() -> None:
    scheduler = Scheduler(max_batch_tokens=99, max_sequences=9)
    for index, adapter in enumerate((1, -1, 0, 1, -1)):
        scheduler.add(sequence(index, 2, adapter))
    adapters = [chunk.sequence.adapter for chunk in scheduler.plan_step()]
    assert adapters == [-1, -1, 0, 1, 1]


def test_no_step_is_larger_than_allowed_and_every_token_is_computed_once() -> None:
    scheduler = Scheduler(max_batch_tokens=3, max_sequences=5)
    sequences = [sequence(index, 1 + 4 * index, max_tokens=1 + index) for index in range(7)]
    for each in sequences:
        scheduler.add(each)
    computed: list[tuple[int, int]] = []
    while scheduler.has_work:
        chunks = scheduler.plan_step()
        assert 1 <= sum(chunk.num_tokens for chunk in chunks) <= 3
        computed += [(c.sequence.index, t) for c in chunks for t in range(c.begin, c.end)]
        compute(chunks)
        scheduler.remove_finished()
    want = [(s.index, t) for s in sequences for t in range(len(s.token_ids) - 1)]
    assert sorted(computed) == sorted(want)
    assert all(s.finish_reason == "length" for s in sequences)
