"""How many tokens of each sequence the next step computes. A decision on plain numbers.

Sequences that generate come first, one token each; what is left of the step goes to prompts in
the order in which they came, in chunks.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Progress(NamedTuple):
    """How far a sequence is."""

    computed: int
    """Tokens that are computed."""
    length: int
    """Tokens that it has; more than are computed."""


def plan_chunks(sequences: Sequence[Progress], max_batch_tokens: int, block_size: int) -> list[int]:
    """Return how many tokens of each sequence the next step computes.

    A chunk that does not reach the end of its prompt ends with a block, where the state of a
    prefix costs nothing to keep, unless the prompt then takes more steps.

    Args:
        sequences: all that run, in the order in which they came.
        max_batch_tokens: tokens of the step.
        block_size: tokens per block of the cache.
    """
    counts, left = [0] * len(sequences), max_batch_tokens
    for index, (computed, length) in enumerate(sequences):
        if length - computed == 1 and left:
            counts[index] = 1
            left -= 1
    for index, (computed, length) in enumerate(sequences):
        if length - computed > 1 and left:
            counts[index] = _chunk(computed, length, left, max_batch_tokens, block_size)
            left -= counts[index]
    return counts


def _chunk(computed: int, length: int, left: int, most: int, block_size: int) -> int:
    pending = length - computed
    if pending <= left:
        return pending
    aligned = (computed + left) // block_size * block_size - computed
    if aligned > 0 and _num_steps(pending - aligned, most) == _num_steps(pending - left, most):
        return aligned
    return left


def _num_steps(num_tokens: int, most: int) -> int:
    return -(-num_tokens // most)
