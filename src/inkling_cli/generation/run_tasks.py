"""Running the tasks of a file in one batch, and writing each result as soon as it is there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inkling_cli.generation.asked import Run
from inkling_cli.generation.run import completion_object, encode_prompt, form_of, make_sampling
from inkling_cli.generation.tasks import Task
from inkling_runtime.errors import InklingError

if TYPE_CHECKING:
    from inkling_runtime.text import Request, TextEvent, TextLLM


@dataclass(slots=True)
class Tally:
    """How far a run is."""

    total: int
    skipped: int = 0
    """Results that were there before."""
    done: int = 0
    failed: int = 0
    tokens: int = 0


def make_task_requests(text_llm: "TextLLM", tasks: Sequence[Task], path: Path) -> "list[Request]":
    """Return the requests of the tasks of a file.

    Raises:
        InklingError: the model's vocabulary cannot take a prompt, or a value is out of range.
    """
    from inkling_runtime.text import Request

    requests = []
    for task in tasks:
        try:
            sampling = make_sampling(**task.sampling)
            sampling.require_valid()
            ids = encode_prompt(text_llm, task.prompt, task.effort)
        except InklingError as error:
            raise InklingError(
                f"`{path}`, line {task.line}: {error.message}", error.hint
            ) from error
        requests.append(Request(ids, sampling, task.adapter))
    return requests


def run_tasks(
    text_llm: "TextLLM",
    tasks: Sequence[Task],
    requests: "Sequence[Request]",
    tally: Tally,
    add: Callable[[dict[str, Any]], None],
    advance: Callable[[Tally], None],
) -> None:
    """Run tasks to their ends.

    Args:
        text_llm: the model.
        tasks: what to do.
        requests: the same as the engine takes it.
        tally: counts what is done.
        add: takes each result, in the order in which they are done.
        advance: told after each token.
    """
    events: dict[int, list[TextEvent]] = {}
    for event in text_llm.stream(requests, [form_of(task.prompt) for task in tasks]):
        index, token = event.token.request, event.token
        events.setdefault(index, []).append(event)
        tally.tokens += token.token_id is not None
        if token.finish_reason is not None:
            task = tasks[index]
            run = Run(task.prompt, task.adapter)
            found = completion_object(run, requests[index], events.pop(index))
            add({"id": task.id, "request": task.fingerprint, **found})
            tally.done += 1
            tally.failed += token.error is not None
        advance(tally)
