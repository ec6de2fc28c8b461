"""The engine: what waits, what runs, and the step that carries all of it forward.

Decides on the host and lets an executor compute. Requests of several streams share its steps.
A step is a transaction: sequences move forward only when all of it is computed, so one that finds
no memory is taken back, the newest sequences end in an error, and the rest goes on.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.cache.cache import Cache
from inkling_runtime.engine.out_of_memory import is_out_of_memory
from inkling_runtime.engine.request import require_valid
from inkling_runtime.engine.scheduler import Progress, plan_chunks
from inkling_runtime.engine.sequence import Chunk
from inkling_runtime.engine.sequence import Sequence as Running
from inkling_runtime.engine.stats import Stats
from inkling_runtime.engine.step import Computer, compute_step
from inkling_runtime.errors import InklingError
from inkling_runtime.lora.adapter_store import AdapterStore
from inkling_runtime.ops.token_adapters import NO_ADAPTER


class Engine:
    """Runs sequences to their ends.

    Args:
        spec: the model.
        executor: who computes.
        cache: who owns what of its cache.
        adapters: its adapters.
        max_batch_tokens: tokens per step; longer prompts are read in several.
        max_sequences: sequences that run at a time; others wait.
    """

    def __init__(
        self,
        spec: ModelSpec,
        executor: Computer,
        cache: Cache,
        adapters: AdapterStore,
        max_batch_tokens: int,
        max_sequences: int,
    ) -> None:
        self.spec = spec
        self.executor = executor
        self.cache = cache
        self.adapters = adapters
        self.max_batch_tokens = max_batch_tokens
        self.max_sequences = max_sequences
        self._waiting: deque[Running] = deque()
        self._running: list[Running] = []
        self._without_room: Running | None = None
        """The sequence that found no room, as long as none was given back."""
        self._num_added = 0
        self._stats = Stats()

    @property
    def stats(self) -> Stats:
        """What was done so far."""
        return replace(
            self._stats,
            running=len(self._running),
            waiting=len(self._waiting),
            used_blocks=self.cache.num_used_blocks,
            kept_prefixes=len(self.cache.prefixes),
        )

    def add(self, sequence: Running) -> None:
        """Let a sequence wait for its turn; one that can never run ends in an error at once."""
        sequence.number, self._num_added = self._num_added, self._num_added + 1
        try:
            require_valid(sequence.request, self.spec)
            self.adapters.content_of(sequence.request.adapter)
            self.cache.require_fits(sequence.max_length, self.max_batch_tokens)
        except InklingError as error:
            self._end(sequence, error)
            return
        self._waiting.append(sequence)

    def cancel(self, sequences: Iterable[Running]) -> None:
        """End sequences now; those that are finished stay as they are."""
        unfinished = [sequence for sequence in sequences if sequence.finish_reason is None]
        if not unfinished:
            return
        for sequence in unfinished:
            self._release(sequence)
            sequence.end("cancelled")
            self._stats.requests_cancelled += 1
        self._waiting = deque(s for s in self._waiting if s.finish_reason is None)
        self._running = [s for s in self._running if s.finish_reason is None]

    def step(self) -> None:
        """Admit what there is room for and compute one step; its tokens go to the inboxes.

        Raises:
            BaseException: whatever was raised within; all that ran has ended in an error.
        """
        try:
            self._admit()
            chunks = self._plan()
            assert chunks or not self._waiting, "nothing runs, so there is room for what waits"
            if chunks:
                self._compute(chunks)
        except BaseException as error:
            self._abandon(error)
            raise

    def _admit(self) -> None:
        """Let waiting sequences run, in the order in which they came, while there is room."""
        while self._waiting and len(self._running) < self.max_sequences:
            sequence = self._waiting[0]
            if sequence is self._without_room:
                return
            try:
                is_admitted = self._try_admit(sequence)
            except InklingError as error:
                self._end(sequence, error)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                self._end(sequence, _no_memory(error))
            else:
                if not is_admitted:
                    return
                self._running.append(sequence)
            self._waiting.popleft()

    def _try_admit(self, sequence: Running) -> bool:
        """Give a sequence its adapter slot and its cache, or leave it without both."""
        name, slot = sequence.request.adapter, NO_ADAPTER
        if name is not None:
            found = self.adapters.acquire(name)
            if found is None:
                return False
            slot = found
        sequence.cache = self.cache.admit(
            self.adapters.content_of(name),
            sequence.token_ids,
            sequence.max_length,
            self.max_batch_tokens,
            may_skip=not sequence.needs_whole_prompt,
        )
        if sequence.cache is None:
            if slot != NO_ADAPTER:
                self.adapters.release(slot)
            self._without_room = sequence
            return False
        sequence.adapter = slot
        sequence.num_computed = sequence.cache.num_reused
        self._stats.tokens_reused += sequence.cache.num_reused
        return True

    def _plan(self) -> list[Chunk]:
        """Return the step's chunks, sequences of one adapter next to each other."""
        counts = plan_chunks(
            [Progress(s.num_computed, len(s.token_ids)) for s in self._running],
            self.max_batch_tokens,
            self.cache.sizes.block_size,
        )
        chunks = [
            Chunk(sequence, sequence.num_computed, sequence.num_computed + count)
            for sequence, count in zip(self._running, counts, strict=True)
            if count
        ]
        return sorted(chunks, key=lambda chunk: chunk.sequence.adapter)

    def _compute(self, chunks: Sequence[Chunk]) -> None:
        """Compute a step, or end its newest sequences where there is no memory for it."""
        for chunk in chunks:
            assert chunk.sequence.cache is not None
            self.cache.begin(
                chunk.sequence.cache, chunk.begin, chunk.end, chunk.sequence.num_prompt
            )
        try:
            result = compute_step(self.executor, chunks, self.cache.sizes.block_size)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            self._end_newest(chunks, _no_memory(error))
            return
        self._commit(chunks)
        for sequence, scores in result.scores:
            sequence.add_scores(scores)
        for sequence, token, logprob, top in result.drawn:
            sequence.append(token, logprob, top)
        self._remove_finished()

    def _commit(self, chunks: Sequence[Chunk]) -> None:
        self._stats.steps += 1
        for chunk in chunks:
            sequence = chunk.sequence
            assert sequence.cache is not None
            self.cache.commit(sequence.cache, sequence.token_ids, chunk.end, sequence.num_prompt)
            sequence.num_computed = chunk.end
            self._stats.tokens_computed += chunk.num_tokens
            self._stats.tokens_generated += chunk.is_last and sequence.sampling.max_tokens > 0

    def _remove_finished(self) -> None:
        """Let go of the sequences that have ended; one that was only to be scored ends here."""
        for sequence in self._running:
            if sequence.finish_reason is None and sequence.num_computed == sequence.max_length:
                sequence.end("length")
            if sequence.finish_reason is not None:
                self._release(sequence)
                self._stats.requests_finished += 1
        self._running = [s for s in self._running if s.finish_reason is None]

    def _end_newest(self, chunks: Sequence[Chunk], error: InklingError) -> None:
        """End the newer half of a step's sequences, at least one."""
        sequences = sorted((chunk.sequence for chunk in chunks), key=lambda s: s.number)
        for sequence in sequences[len(sequences) // 2 :]:
            self._end(sequence, error)
        self._running = [s for s in self._running if s.finish_reason is None]

    def _end(self, sequence: Running, error: InklingError) -> None:
        self._release(sequence)
        sequence.end("error", error)
        self._stats.requests_in_error += 1

    def _release(self, sequence: Running) -> None:
        """Take back what a sequence owns."""
        if sequence.cache is not None:
            self.cache.release(sequence.cache)
            sequence.cache = self._without_room = None
        if sequence.adapter != NO_ADAPTER:
            self.adapters.release(sequence.adapter)
            sequence.adapter = NO_ADAPTER

    def _abandon(self, error: BaseException) -> None:
        """Forget all that ran and all that was kept: anything may be half done."""
        running, self._running = self._running, []
        self._without_room = None
        self.cache.reset()
        self.adapters.reset()
        for sequence in [*running, *self._waiting]:
            sequence.cache, sequence.adapter = None, NO_ADAPTER
        for sequence in running:
            if sequence.finish_reason is None:
                name = type(error).__name__
                self._end(sequence, InklingError(f"the step was ended by `{name}`"))
        self._waiting = deque(s for s in self._waiting if s.finish_reason is None)


def _no_memory(error: BaseException) -> InklingError:
    return InklingError(
        f"there is no memory for the request: {str(error).splitlines()[0] if str(error) else ''}",
        "lower `max_batch_tokens`, `max_sequences` or `cache_memory`",
    )
