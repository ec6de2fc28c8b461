"""Whether an adapter takes effect: base and adapter side by side on one prompt.

A proof that can fail: an adapter whose parts match nothing gives differences of exactly zero,
because a request without an adapter and one with an idle adapter compute the same numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inkling_runtime.llm import LLM, Completion, Request, SamplingParams


@dataclass(frozen=True, slots=True)
class Effect:
    """What an adapter changes on a prompt. Differences are of log-probabilities, in nats."""

    adapter: str
    base: Completion
    adapted: Completion
    prompt_deltas: tuple[float, ...]
    """|Δ log p| of the prompt's second, third and following tokens."""
    continuation_deltas: tuple[float, ...]
    """|Δ log p| of the tokens that the base model continues with."""
    first_difference: int | None
    """Index of the first generated token that differs; None if none does."""

    @property
    def takes_effect(self) -> bool:
        """Whether any log-probability changed at all."""
        return any(self.prompt_deltas) or any(self.continuation_deltas)

    @property
    def mean_prompt_delta(self) -> float | None:
        """Mean |Δ log p| on the prompt; None for a prompt of one token."""
        return _mean(self.prompt_deltas)

    @property
    def mean_continuation_delta(self) -> float | None:
        """Mean |Δ log p| on the base model's continuation."""
        return _mean(self.continuation_deltas)


def measure_effect(
    llm: LLM, prompt_ids: Sequence[int], sampling: SamplingParams, adapter: str
) -> Effect:
    """Return what a loaded adapter changes on a prompt and on its continuation.

    Raises:
        InklingError: the prompt, the sampling or the adapter is not what the model can do.
    """
    sampling = replace(sampling, prompt_logprobs=False)
    base, adapted = llm.generate(
        [Request(prompt_ids, sampling), Request(prompt_ids, sampling, adapter)]
    )
    for completion in (base, adapted):
        if completion.error is not None:
            raise completion.error
    ids = [*prompt_ids, *base.token_ids]
    deltas = (llm.log_probs(ids, adapter) - llm.log_probs(ids)).abs().tolist()
    split = len(prompt_ids) - 1
    return Effect(
        adapter,
        base,
        adapted,
        tuple(deltas[:split]),
        tuple(deltas[split:]),
        _first_difference(base.token_ids, adapted.token_ids),
    )


def _first_difference(first: Sequence[int], second: Sequence[int]) -> int | None:
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return None if len(first) == len(second) else min(len(first), len(second))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
