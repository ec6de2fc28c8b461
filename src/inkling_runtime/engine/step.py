"""One step of the engine: forward, scores of prompts where they are wanted, next tokens.

Changes no sequence: what it returns is taken over only if all of it was computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from inkling_runtime.engine.request import TopLogprobs
from inkling_runtime.engine.sampling import log_probs_of, sample, top_log_probs
from inkling_runtime.engine.sequence import Chunk
from inkling_runtime.engine.sequence import Sequence as Running
from inkling_runtime.engine.step_input import StepInput
from inkling_runtime.engine.step_plan import make_step_input

LOGIT_ROWS = 128
"""Rows of logits held at a time when a whole prompt is scored."""


class Computer(Protocol):
    """Who computes a step."""

    def forward(self, step: StepInput) -> None:
        """Compute a step; its hidden states stay until the next one."""

    def logits(self, rows: Sequence[int], adapters: Sequence[int]) -> Tensor:
        """Return the fp32 logits [n, V] after these tokens of the last step."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step gives its sequences."""

    scores: list[tuple[Running, list[Tensor]]]
    """For prompts of which every token is told: logits [n, V], or log-probabilities [n]."""
    drawn: list[tuple[Running, int, float, TopLogprobs]]
    """The next tokens, in the order in which the sequences came."""


@torch.inference_mode()
def compute_step(executor: Computer, chunks: Sequence[Chunk], block_size: int) -> StepResult:
    """Return what the chunks give; every sequence has a cache with room for its chunk."""
    executor.forward(make_step_input(chunks, block_size))
    return StepResult(_score_prompts(executor, chunks), _draw_tokens(executor, chunks))


def _score_prompts(
    executor: Computer, chunks: Sequence[Chunk]
) -> list[tuple[Running, list[Tensor]]]:
    scores, row = [], 0
    for chunk in chunks:
        if chunk.sequence.needs_whole_prompt:
            last = chunk.sequence.num_prompt - (chunk.sequence.prompt_logits is None)
            rows = range(row, row + min(chunk.end, last) - chunk.begin)
            if rows:
                scores.append((chunk.sequence, _score_rows(executor, chunk, rows)))
        row += chunk.num_tokens
    return scores


def _score_rows(executor: Computer, chunk: Chunk, rows: range) -> list[Tensor]:
    sequence, scores = chunk.sequence, []
    for begin in range(0, len(rows), LOGIT_ROWS):
        some = rows[begin : begin + LOGIT_ROWS]
        logits = executor.logits(some, [sequence.adapter] * len(some))
        if sequence.prompt_logits is None:
            first = chunk.begin + 1 + begin
            targets = sequence.token_ids[first : first + len(some)]
            logits = log_probs_of(logits, torch.tensor(targets, device=logits.device))
        scores.append(logits)
    return scores


def _draw_tokens(
    executor: Computer, chunks: Sequence[Chunk]
) -> list[tuple[Running, int, float, TopLogprobs]]:
    rows, sequences = _rows_to_sample(chunks)
    if not rows:
        return []
    logits = executor.logits(rows, [sequence.adapter for sequence in sequences])
    params = [sequence.sampling for sequence in sequences]
    draws = [sequence.draw() for sequence in sequences]
    tokens, logprobs = sample(logits, params, draws)
    counts = [param.top_logprobs for param in params]
    all_tops = top_log_probs(logits, max(counts)) if any(counts) else [()] * len(tokens)
    tops = [top[:count] for top, count in zip(all_tops, counts, strict=True)]
    drawn = list(zip(sequences, tokens, logprobs, tops, strict=True))
    return sorted(drawn, key=lambda one: one[0].number)


def _rows_to_sample(chunks: Sequence[Chunk]) -> tuple[list[int], list[Running]]:
    """Return the step's rows after which a token is to be chosen, and whose they are."""
    rows, sequences, end = [], [], 0
    for chunk in chunks:
        end += chunk.num_tokens
        if chunk.is_last and chunk.sequence.sampling.max_tokens:
            rows.append(end - 1)
            sequences.append(chunk.sequence)
    return rows, sequences
