"""Choosing the next token of each sequence.

A draw is one number per token, made by the sequence's own generator, and the token is found by
inverting the cumulative distribution. So what a seed gives does not depend on the batch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_runtime.errors import InklingError


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a request's tokens are chosen and when it ends."""

    max_tokens: int = 256
    """0: the prompt is only scored (`prompt_logprobs`)."""
    temperature: float = 1.0
    """0: always the most probable token."""
    top_p: float = 1.0
    """Only the smallest set of most probable tokens that has this much probability."""
    top_k: int = 0
    """Only so many of the most probable tokens; 0: all. Applied before `top_p`."""
    seed: int | None = None
    """None: another one each time."""
    stop_ids: tuple[int, ...] = ()
    """Tokens that end the sequence; the one that did is its last token."""
    stop: tuple[str, ...] = ()
    """Texts that end the sequence and are cut from it (only `TextLLM`, which has text)."""
    ignore_stop: bool = False
    """Whether it goes on to `max_tokens` whatever it says."""
    prompt_logprobs: bool = False
    """Whether the completion tells the log-probabilities of the prompt, too."""
    top_logprobs: int = 0
    """How many of the most probable ids are told with each token."""

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is always chosen; of equal ones the smallest id."""
        return self.temperature == 0 or self.top_k == 1

    def require_valid(self) -> None:
        """Require that every value is within its range.

        Raises:
            InklingError: one is not.
        """
        if self.max_tokens < 0:
            raise InklingError(f"max_tokens is {self.max_tokens}, expected 0 or more")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise InklingError(f"temperature is {self.temperature}, expected 0 or more")
        if not 0 < self.top_p <= 1:
            raise InklingError(f"top_p is {self.top_p}, expected more than 0 and at most 1")
        if self.top_k < 0:
            raise InklingError(f"top_k is {self.top_k}, expected 0 or more")
        if self.top_logprobs < 0:
            raise InklingError(f"top_logprobs is {self.top_logprobs}, expected 0 or more")
        if "" in self.stop:
            raise InklingError("a stop string is empty, expected at least one character")


def sample(
    logits: Tensor, params: Sequence[SamplingParams], draws: Sequence[float]
) -> tuple[list[int], list[float]]:
    """Return the next token of every row and its log-probability.

    The log-probability is the model's own, before temperature, top-k and top-p.

    Args:
        logits: [B, V] fp32.
        params: one per row.
        draws: one number in [0, 1) per row.
    """
    ids = logits.argmax(-1)
    for row, (param, draw) in enumerate(zip(params, draws, strict=True)):
        if not param.is_greedy:
            ids[row] = _pick(logits[row], param, draw)
    return ids.tolist(), log_probs_of(logits, ids).tolist()


def top_log_probs(logits: Tensor, count: int) -> list[tuple[tuple[int, float], ...]]:
    """Return the `count` most probable ids of every row with their log-probabilities."""
    values, ids = logits.topk(min(count, logits.shape[-1]))
    values = values - logits.logsumexp(-1, keepdim=True)
    return [
        tuple(zip(row_ids, row, strict=True))
        for row_ids, row in zip(ids.tolist(), values.tolist(), strict=True)
    ]


def log_probs_of(logits: Tensor, ids: Tensor) -> Tensor:
    """Return log p of one id per row, fp32 [T]."""
    return logits.gather(1, ids[:, None])[:, 0] - logits.logsumexp(-1)


def _pick(logits: Tensor, params: SamplingParams, draw: float) -> Tensor:
    """Return the id at which the cumulative probability passes `draw`."""
    values, ids = _candidates(logits, params)
    # The largest becomes 0 first: no temperature, however small, makes it infinite.
    probs = ((values.double() - values.max()) / params.temperature).softmax(-1)
    if params.top_p < 1:
        probs *= probs.cumsum(-1) - probs < params.top_p
    cumulative = probs.cumsum(-1)
    total = cumulative[-1]
    place = torch.searchsorted(cumulative, draw * total, right=True)
    last = (cumulative < total).sum()
    return ids[torch.minimum(place, last)]


def _candidates(logits: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """Return logits and ids, in descending order where top-k or top-p need it."""
    if 0 < params.top_k < len(logits):
        top = logits.topk(params.top_k)
        return top.values, top.indices
    if params.top_p < 1:
        ordered = logits.sort(descending=True, stable=True)
        return ordered.values, ordered.indices
    return logits, torch.arange(len(logits), device=logits.device)
