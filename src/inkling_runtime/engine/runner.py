"""The step: forward pass, scores of the prompt where asked for, next tokens."""

from collections.abc import Sequence

import torch
from torch import Tensor

from inkling_runtime.cache.model_cache import ModelCache
from inkling_runtime.engine.batch import build_batch
from inkling_runtime.engine.sampling import log_probs_of, sample
from inkling_runtime.engine.sequence import Chunk
from inkling_runtime.engine.sequence import Sequence as Running
from inkling_runtime.lora.slots import AdapterSlots
from inkling_runtime.model.inkling import Inkling
from inkling_runtime.ops.token_adapters import TokenAdapters

LOGIT_ROWS = 128
"""Rows of logits held at a time when a whole prompt is scored."""


class Runner:
    """Runs steps of a model over its cache and its adapters.

    Args:
        model: the base model.
        cache: its cache.
        slots: its adapters.
    """

    def __init__(self, model: Inkling, cache: ModelCache, slots: AdapterSlots) -> None:
        self.model = model
        self.cache = cache
        self.slots = slots

    @torch.inference_mode()
    def step(self, chunks: Sequence[Chunk]) -> list[Running]:
        """Compute the chunks and return the sequences that got a token by it."""
        hidden = self.forward(chunks)
        self._score_prompts(chunks, hidden)
        rows, sequences, end = [], [], 0
        for chunk in chunks:
            end += chunk.num_tokens
            if chunk.is_last:
                rows.append(end - 1)
                sequences.append(chunk.sequence)
        if not rows:
            return []
        logits = self.logits(hidden[rows], [sequence.adapter for sequence in sequences])
        draws = [sequence.draw() for sequence in sequences]
        tokens, logprobs = sample(logits, [sequence.sampling for sequence in sequences], draws)
        for sequence, token, logprob in zip(sequences, tokens, logprobs, strict=True):
            sequence.append(token, logprob)
        return sequences

    def release(self, sequence: Running) -> None:
        """Take back what a sequence owns in the cache."""
        if sequence.cache is not None:
            self.cache.close(sequence.cache)
            sequence.cache = None

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Chunk]) -> Tensor:
        """Compute the chunks and return their hidden states [T, H]."""
        batch = build_batch(chunks, self.cache)
        hidden = self.model.forward(batch, self.cache.layers(), self.slots.layers)
        for chunk in chunks:
            chunk.sequence.num_computed = chunk.end
        return hidden

    @torch.inference_mode()
    def logits(self, hidden: Tensor, adapters: Sequence[int]) -> Tensor:
        """Return the fp32 logits [T, V] of hidden states, given each row's adapter id."""
        tokens = TokenAdapters.from_ids(adapters, hidden.device)
        return self.model.logits(hidden, self.slots.head, tokens)

    def _score_prompts(self, chunks: Sequence[Chunk], hidden: Tensor) -> None:
        """Add the log-probabilities of prompt tokens to the sequences that want them."""
        start = 0
        for chunk in chunks:
            sequence, rows = chunk.sequence, hidden[start : start + chunk.num_tokens]
            start += chunk.num_tokens
            if sequence.sampling.prompt_logprobs:
                targets = sequence.token_ids[chunk.begin + 1 : sequence.num_prompt][: len(rows)]
                sequence.prompt_logprobs += self._log_probs(rows, targets, sequence.adapter)

    def _log_probs(self, hidden: Tensor, targets: list[int], adapter: int) -> list[float]:
        """Return log p of each target given the row of the same index."""
        scores: list[float] = []
        for begin in range(0, len(targets), LOGIT_ROWS):
            ids = targets[begin : begin + LOGIT_ROWS]
            rows = hidden[begin : begin + len(ids)]
            logits = self.logits(rows, [adapter] * len(ids))
            scores += log_probs_of(logits, torch.tensor(ids, device=hidden.device)).tolist()
        return scores
