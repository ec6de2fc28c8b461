"""A sequence: its tokens so far, how many of them are computed, and what it owns."""

import random
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_runtime.cache.sequence_cache import SequenceCache
from inkling_runtime.engine.request import (
    Completion,
    FinishReason,
    Request,
    TokenEvent,
    TopLogprobs,
)
from inkling_runtime.errors import InklingError
from inkling_runtime.ops.token_adapters import NO_ADAPTER


class Sequence:
    """The state of one request.

    Args:
        index: which request of its stream it is.
        request: what is asked.
        inbox: where its events go.
        logits: gets the logits of every prompt token, if anybody wants them.
    """

    def __init__(
        self,
        index: int,
        request: Request,
        inbox: deque[TokenEvent],
        logits: list[Tensor] | None = None,
    ) -> None:
        self.index = index
        self.request = request
        self.sampling = request.sampling
        self.token_ids = list(request.prompt_ids)
        self.num_prompt = len(self.token_ids)
        self.number = -1
        """Its place among all sequences of the engine, given when it begins to wait."""
        self.adapter = NO_ADAPTER
        """Its adapter slot while it runs."""
        self.cache: SequenceCache | None = None
        self.num_computed = 0
        self.prompt_logits = logits
        self.prompt_logprobs: list[float] = []
        self.finish_reason: FinishReason | None = None
        self.error: InklingError | None = None
        self._inbox = inbox
        self._logprobs: list[float] = []
        self._top_logprobs: list[TopLogprobs] = []
        self._random = random.Random(request.sampling.seed)
        self._draw: float | None = None

    @property
    def max_length(self) -> int:
        """Tokens that it can have in the end."""
        return self.num_prompt + self.sampling.max_tokens

    @property
    def needs_whole_prompt(self) -> bool:
        """Whether something is told of every prompt token, so that none can be skipped."""
        return self.sampling.prompt_logprobs or self.prompt_logits is not None

    def draw(self) -> float:
        """Return a number in [0, 1) of the sequence's own generator, the same until `append`."""
        if self._draw is None:
            self._draw = self._random.random()
        return self._draw

    def append(self, token_id: int, logprob: float, top: TopLogprobs = ()) -> None:
        """Add a generated token, decide whether it was the last, and tell of it."""
        self._draw = None
        self.token_ids.append(token_id)
        self._logprobs.append(logprob)
        self._top_logprobs.append(top)
        if token_id in self.sampling.stop_ids and not self.sampling.ignore_stop:
            self.finish_reason = "stop"
        elif len(self.token_ids) == self.max_length:
            self.finish_reason = "length"
        is_first = len(self.token_ids) == self.num_prompt + 1
        scores = self._scores() if is_first else None
        event = TokenEvent(self.index, token_id, logprob, self.finish_reason, top, scores)
        self._inbox.append(event)

    def add_scores(self, scores: list[Tensor]) -> None:
        """Add what is told of the next prompt tokens: logits if wanted, else log-probabilities."""
        if self.prompt_logits is not None:
            self.prompt_logits += scores
        else:
            self.prompt_logprobs += torch.cat(scores).tolist()

    def end(self, reason: FinishReason, error: InklingError | None = None) -> None:
        """End without another token."""
        self.finish_reason, self.error = reason, error
        scores = self._scores() if reason == "length" else None
        event = TokenEvent(self.index, None, 0.0, reason, prompt_logprobs=scores, error=error)
        self._inbox.append(event)

    def completion(self) -> Completion:
        """Return what was generated; the sequence is finished."""
        assert self.finish_reason is not None
        return Completion(
            token_ids=self.token_ids[self.num_prompt :],
            logprobs=self._logprobs,
            finish_reason=self.finish_reason,
            prompt_logprobs=self._scores(),
            top_logprobs=self._top_logprobs if self.sampling.top_logprobs else None,
            error=self.error,
        )

    def _scores(self) -> list[float] | None:
        """Return the log-probabilities of the prompt, if they are asked for."""
        return self.prompt_logprobs if self.sampling.prompt_logprobs else None


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
