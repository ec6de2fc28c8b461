"""What is asked of the engine and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.engine.sampling import SamplingParams
from inkling_runtime.errors import InklingError

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt to be continued, by the base model or with one adapter."""

    prompt_ids: Sequence[int]
    sampling: SamplingParams = SamplingParams()  # noqa: RUF009 - frozen
    adapter: str | None = None


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One generated token."""

    request: int
    """Index into the requests that were given."""
    token_id: int
    logprob: float
    finish_reason: FinishReason | None
    """Set with the last token of a request."""


@dataclass(frozen=True, slots=True)
class Completion:
    """Everything that was generated for one request."""

    token_ids: list[int]
    """The stop token, if one ended the request, is the last of them."""
    logprobs: list[float]
    finish_reason: FinishReason
    prompt_logprobs: list[float] | None = None
    """log p of the prompt's second, third … token, if asked for."""


def require_valid_ids(token_ids: Sequence[int], spec: ModelSpec, what: str) -> None:
    """Require a non-empty list of ids that the model has, no longer than it can read.

    Raises:
        InklingError: it is not.
    """
    if not token_ids:
        raise InklingError(f"{what} is empty, expected at least one token")
    wrong = [i for i in token_ids if not 0 <= i < spec.unpadded_vocab_size]
    if wrong:
        raise InklingError(
            f"{what} has the token id {wrong[0]}, expected 0 to {spec.unpadded_vocab_size - 1}"
        )
    if len(token_ids) > spec.max_positions:
        raise InklingError(
            f"{what} has {len(token_ids)} tokens, the model reads at most {spec.max_positions}"
        )


def require_valid(request: Request, index: int, spec: ModelSpec) -> None:
    """Require that the model can do what a request asks.

    Raises:
        InklingError: it cannot.
    """
    what = f"the prompt of request {index}"
    require_valid_ids(request.prompt_ids, spec, what)
    request.sampling.require_valid()
    total = len(request.prompt_ids) + request.sampling.max_tokens
    if total > spec.max_positions:
        raise InklingError(
            f"{what} has {len(request.prompt_ids)} tokens and asks for up to "
            f"{request.sampling.max_tokens} more, the model reads at most {spec.max_positions}"
        )
