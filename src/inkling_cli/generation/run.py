"""Loading a model with its adapters, running prompts, comparing with the base model.

Torch is imported inside these functions only, after the environment that it reads is set.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inkling_cli.generation.asked import AdapterPlan, Prompt, Run
from inkling_cli.render.generation import LiveReplies, comparison_object
from inkling_runtime.adapter.interrupts import interrupts_held
from inkling_runtime.adapter.site_pairs import SitePairs, gather_sound_pairs
from inkling_runtime.errors import InklingError
from inkling_runtime.threads import settle_threads

if TYPE_CHECKING:
    from inkling_runtime.text import ReplyForm, Request, SamplingParams, TextEvent, TextLLM


def load_model(
    model: Path,
    plans: Sequence[AdapterPlan],
    compile_mode: str,
    note: Callable[[str], None],
    options: Mapping[str, Any],
) -> "TextLLM":
    """Return the model with its adapters loaded.

    Args:
        model: the model's folder.
        plans: the adapters.
        compile_mode: whether compiled CPU kernels are used: `auto`, `on` or `off`.
        note: takes what the user should know, a sentence each.
        options: as of `LLM`.

    Raises:
        InklingError: the runtime is not installed, or the model cannot be loaded.
    """
    settle_threads()
    try:
        # Torch's imports swallow a Ctrl-C here and there, and go on without what it broke.
        with interrupts_held():
            from inkling_runtime.text import TextLLM
    except ModuleNotFoundError as error:
        raise InklingError(
            f"`{error.name}` is not installed, `inkling generate` needs it",
            "pip install 'inkling-cli[runtime]'",
        ) from error
    from inkling_runtime.adapter.load_factors import LazyFactors

    text_llm = TextLLM(model, compile_mode=compile_mode, **options)
    for sentence in text_llm.llm.notes:
        note(sentence)
    for plan in plans:
        text_llm.llm.load_adapter(plan.name, LazyFactors(_found_shared(plan), text_llm.llm.spec))
    return text_llm


def _found_shared(plan: AdapterPlan) -> SitePairs:
    """Return what is applied, with factors that are the same for every expert as one.

    Dialects that repeat them cost the memory and the time of all experts otherwise.
    """
    from inkling_runtime.adapter.arrays import CONTENTS

    pairs, _ = gather_sound_pairs(plan.subject.adapter, plan.subject.spec, CONTENTS)
    return {site: pairs[site] for site in plan.applied}


def make_sampling(**values: Any) -> "SamplingParams":
    """Return sampling parameters (see `SamplingParams`)."""
    from inkling_runtime.text import SamplingParams

    return SamplingParams(**values)


def make_requests(
    text_llm: "TextLLM", runs: Sequence[Run], sampling: "SamplingParams", effort: str
) -> "list[Request]":
    """Return the requests of all runs, each prompt encoded.

    Raises:
        InklingError: the model's vocabulary cannot take a prompt, or the effort is unknown.
    """
    from inkling_runtime.text import Request

    return [
        Request(encode_prompt(text_llm, run.prompt, effort), sampling, run.adapter) for run in runs
    ]


def encode_prompt(text_llm: "TextLLM", prompt: Prompt, effort: str) -> Sequence[int]:
    """Return the token ids of a prompt.

    Raises:
        InklingError: the model's vocabulary cannot take it, or the effort is unknown.
    """
    from inkling_runtime.chat.prompt import parse_effort

    level = parse_effort(effort)
    if prompt.ids is not None:
        return prompt.ids
    if prompt.messages is not None:
        return text_llm.encode_chat(prompt.messages, level)
    return text_llm.encode(prompt.text or "")


def run_prompts(
    text_llm: "TextLLM",
    runs: Sequence[Run],
    requests: "Sequence[Request]",
    write: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Run all requests in one batch, write their replies as they come, return them as objects.

    Raises:
        InklingError: there is one request, and it cannot be done; of several the others go on.
    """
    forms = [form_of(run.prompt) for run in runs]
    live = LiveReplies([run.heading for run in runs], write)
    events: list[list[TextEvent]] = [[] for _ in runs]
    for event in text_llm.stream(requests, forms):
        index = event.token.request
        events[index].append(event)
        for piece in event.pieces:
            live.add(index, piece.kind.value, piece.text, piece.starts)
        if event.token.error is not None and len(runs) == 1:
            raise event.token.error
        if event.token.finish_reason is not None:
            live.finish(index)
    return [
        completion_object(run, request, found)
        for run, request, found in zip(runs, requests, events, strict=True)
    ]


def compare_prompts(
    text_llm: "TextLLM", runs: Sequence[Run], requests: "Sequence[Request]"
) -> list[dict[str, Any]]:
    """Return what each run's adapter changes against the base model, as objects.

    Raises:
        InklingError: a run has no adapter to compare.
    """
    from inkling_runtime.effect import measure_effect

    objects = []
    for run, request in zip(runs, requests, strict=True):
        if run.adapter is None:
            raise InklingError("`--compare` needs an adapter", "pass `--lora ADAPTER`")
        effect = measure_effect(text_llm.llm, request.prompt_ids, request.sampling, run.adapter)
        objects.append(comparison_object(effect, run.prompt.label, text_llm.decode))
    return objects


def form_of(prompt: Prompt) -> "ReplyForm":
    """Return how the reply to a prompt is given out."""
    from inkling_runtime.text import ReplyForm

    if prompt.ids is not None:
        return ReplyForm.IDS
    return ReplyForm.TEXT if prompt.messages is None else ReplyForm.CHAT


def completion_object(
    run: Run, request: "Request", events: "Sequence[TextEvent]"
) -> dict[str, Any]:
    """Return the JSON object of one completion, from all its events."""
    from inkling_runtime.chat.reply import join_pieces

    reply = join_pieces([piece for event in events for piece in event.pieces])
    tokens = [event for event in events if event.token.token_id is not None]
    first, last = events[0].token, events[-1].token
    with_top = request.sampling.top_logprobs > 0
    scores = first.prompt_logprobs
    return {
        "prompt": run.prompt.label,
        "adapter": run.adapter,
        "prompt_ids": list(request.prompt_ids),
        "token_ids": [event.token.token_id for event in tokens],
        "logprobs": [event.token.logprob for event in tokens],
        "top_logprobs": [event.token.top_logprobs for event in tokens] if with_top else None,
        "prompt_logprobs": None if scores is None else list(scores),
        "finish_reason": last.finish_reason,
        "error": None if last.error is None else last.error.message,
        "text": reply.text,
        "thinking": reply.thinking,
        "tool_calls": [
            {"name": call.name, "args": call.args, "raw": call.raw} for call in reply.tool_calls
        ],
    }
