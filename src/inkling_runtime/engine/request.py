"""What is asked of the engine and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.engine.sampling import SamplingParams
from inkling_runtime.errors import InklingError

FinishReason = Literal["stop", "length", "cancelled", "error"]
TopLogprobs: TypeAlias = tuple[tuple[int, float], ...]
"""The most probable ids of a place with their log-probabilities, the most probable first."""


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt to be continued, by the base model or with one adapter."""

    prompt_ids: Sequence[int]
    sampling: SamplingParams = SamplingParams()  # noqa: RUF009 - frozen
    adapter: str | None = None


Prompt: TypeAlias = Request | Sequence[int]


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One generated token, or the end of a request that ends without one."""

    request: int
    """Index into the requests that were given."""
    token_id: int | None
    """None: the request was cancelled or could not be done."""
    logprob: float
    finish_reason: FinishReason | None
    """Set with the last event of a request."""
    top_logprobs: TopLogprobs = ()
    prompt_logprobs: Sequence[float] | None = None
    """log p of the prompt's second, third … token, if asked for: with the first event of a request
    whose prompt was read."""
    error: InklingError | None = None
    """Why the request could not be done, where `finish_reason` is "error"."""


@dataclass(frozen=True, slots=True)
class Completion:
    """Everything that was generated for one request."""

    token_ids: list[int]
    """The stop token, if one ended the request, is the last of them."""
    logprobs: list[float]
    finish_reason: FinishReason
    prompt_logprobs: list[float] | None = None
    """log p of the prompt's second, third … token, if asked for."""
    top_logprobs: list[TopLogprobs] | None = None
    """For each generated token, if asked for."""
    error: InklingError | None = None
    """Why the request could not be done, where `finish_reason` is "error"."""


def make_requests(
    prompts: Sequence[Prompt],
    sampling: SamplingParams | None,
    lora: str | Sequence[str | None] | None,
) -> list[Request]:
    """Return the requests that prompts are, or that lists of ids make.

    Args:
        prompts: requests, or lists of token ids.
        sampling: for all lists of ids.
        lora: an adapter's name for all lists of ids, or one (or None) for each.

    Raises:
        InklingError: both a request and an argument say how it is to be run, or there is not one
            adapter for each prompt.
    """
    names = [lora] * len(prompts) if lora is None or isinstance(lora, str) else list(lora)
    if len(names) != len(prompts):
        raise InklingError(
            f"there are {len(names)} adapters for {len(prompts)} prompts, expected one for each"
        )
    return [_make(prompt, sampling, name) for prompt, name in zip(prompts, names, strict=True)]


def _make(prompt: Prompt, sampling: SamplingParams | None, name: str | None) -> Request:
    if isinstance(prompt, Request):
        if sampling is not None or name is not None:
            raise InklingError(
                "a `Request` has its own sampling and adapter, expected neither `sampling` nor "
                "`lora` beside it"
            )
        return prompt
    if isinstance(prompt, str) or not isinstance(prompt, Sequence):
        raise InklingError(
            f"a prompt is {prompt!r}, expected a list of token ids",
            "pass a list of prompts: `[[3, 4, 5]]`",
        )
    return Request(prompt, sampling or SamplingParams(), name)


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


def require_valid(request: Request, spec: ModelSpec) -> None:
    """Require that the model can do what a request asks.

    Raises:
        InklingError: it cannot.
    """
    require_valid_ids(request.prompt_ids, spec, "the prompt")
    request.sampling.require_valid()
    if request.sampling.stop:
        raise InklingError(
            f"the stop string {request.sampling.stop[0]!r} cannot be found in token ids",
            "stop at token ids (`stop_ids`, `--stop-id`), or give the prompt as a text (`TextLLM`)",
        )
    total = len(request.prompt_ids) + request.sampling.max_tokens
    if total > spec.max_positions:
        raise InklingError(
            f"the prompt has {len(request.prompt_ids)} tokens and asks for up to "
            f"{request.sampling.max_tokens} more, the model reads at most {spec.max_positions}",
            "shorten the prompt or ask for fewer tokens",
        )
