"""Which tokens the next step computes. A decision only: nothing here touches a tensor.

Sequences that generate come first, one token each; what is left of the step goes to prompts, in
chunks. A waiting sequence joins as soon as there is room, a finished one leaves at once.
"""

from collections import deque

from inkling_runtime.engine.sequence import Chunk, Sequence


class Scheduler:
    """Plans steps over the sequences that were added.

    Args:
        max_batch_tokens: tokens per step.
        max_sequences: sequences that run at a time.
    """

    def __init__(self, max_batch_tokens: int, max_sequences: int) -> None:
        self.max_batch_tokens = max_batch_tokens
        self.max_sequences = max_sequences
        self._waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait for its turn."""
        self._waiting.append(sequence)

    @property
    def has_work(self) -> bool:
        """Whether any sequence is unfinished."""
        return bool(self._waiting or self.running)

    def plan_step(self) -> list[Chunk]:
        """Return the next step's chunks, sequences of one adapter next to each other."""
        while self._waiting and len(self.running) < self.max_sequences:
            self.running.append(self._waiting.popleft())
        chunks, left = [], self.max_batch_tokens
        for sequence in sorted(self.running, key=lambda sequence: sequence.num_pending > 1):
            count = min(sequence.num_pending, left)
            if count:
                begin = sequence.num_computed
                chunks.append(Chunk(sequence, begin, begin + count))
                left -= count
        return sorted(chunks, key=lambda chunk: chunk.sequence.adapter)

    def remove_finished(self) -> list[Sequence]:
        """Drop the sequences that are finished and return them."""
        finished = [sequence for sequence in self.running if sequence.finish_reason]
        self.running = [sequence for sequence in self.running if not sequence.finish_reason]
        return finished
