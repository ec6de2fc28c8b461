"""A sequence: its tokens so far, how many of them are computed, and what it owns."""

import random
from collections.abc import Sequence as Tokens
from dataclasses import dataclass

from inkling_runtime.cache.model_cache import SequenceCache
from inkling_runtime.engine.request import Completion, FinishReason
from inkling_runtime.engine.sampling import SamplingParams


class Sequence:
    """The state of one request.

    Args:
        index: which request it is.
        prompt_ids: its prompt, not empty.
        adapter: adapter id, -1 = none.
        sampling: how it goes on.
    """

    def __init__(
        self, index: int, prompt_ids: Tokens[int], adapter: int, sampling: SamplingParams
    ) -> None:
        self.index = index
        self.token_ids = list(prompt_ids)
        self.num_prompt = len(self.token_ids)
        self.adapter = adapter
        self.sampling = sampling
        self.cache: SequenceCache | None = None
        self.num_computed = 0
        self.logprobs: list[float] = []
        self.prompt_logprobs: list[float] = []
        self.finish_reason: FinishReason | None = None
        self._random = random.Random(sampling.seed)

    @property
    def num_pending(self) -> int:
        """Tokens that the model has not seen yet."""
        return len(self.token_ids) - self.num_computed

    @property
    def max_length(self) -> int:
        """Tokens that it can have in the end."""
        return self.num_prompt + self.sampling.max_tokens

    def draw(self) -> float:
        """Return the next number in [0, 1) of the sequence's own generator."""
        return self._random.random()

    def append(self, token_id: int, logprob: float) -> None:
        """Add a generated token and decide whether it was the last."""
        self.token_ids.append(token_id)
        self.logprobs.append(logprob)
        if token_id in self.sampling.stop_ids:
            self.finish_reason = "stop"
        elif len(self.token_ids) == self.max_length:
            self.finish_reason = "length"

    def completion(self) -> Completion:
        """Return what was generated; the sequence is finished."""
        assert self.finish_reason is not None
        return Completion(
            token_ids=self.token_ids[self.num_prompt :],
            logprobs=self.logprobs,
            finish_reason=self.finish_reason,
            prompt_logprobs=self.prompt_logprobs if self.sampling.prompt_logprobs else None,
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """The tokens [begin, end) of a sequence, to be computed in one step."""

    sequence: Sequence
    begin: int
    end: int

    @property
    def num_tokens(self) -> int:
        """How many tokens."""
        return self.end - self.begin

    @property
    def is_last(self) -> bool:
        """Whether the step's last token of the sequence is its newest, so that one can follow."""
        return self.end == len(self.sequence.token_ids)
