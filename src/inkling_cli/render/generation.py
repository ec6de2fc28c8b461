"""`inkling generate` for people and for programs: replies as they come, comparisons at the end."""

from collections.abc import Callable, Sequence
from typing import Any

from rich.text import Text

from inkling_cli.render.printable import printable, printable_lines

_LABELS = {"thinking": "thinking: ", "tool call": "tool call: "}


class LiveReplies:
    """Writes the replies of several runs, in order, each as it comes.

    The first unfinished reply is written live; text of later ones waits for its turn.

    Args:
        headings: what stands above each reply; an only reply has none.
        write: takes text to be written at once.
    """

    def __init__(self, headings: Sequence[str], write: Callable[[str], None]) -> None:
        self._headings = headings
        self._write = write
        self._waiting: list[list[str]] = [[] for _ in headings]
        self._is_done = [False] * len(headings)
        self._current = 0
        self._is_open = False
        self._last_kind = ["text"] * len(headings)

    def add(self, run: int, kind: str, text: str, starts: bool) -> None:
        """Add a piece of a run's reply."""
        text = printable_lines(text)
        if starts and (kind in _LABELS or self._last_kind[run] != kind):
            text = (
                ("\n" if self._waiting[run] or self._is_open else "") + _LABELS.get(kind, "") + text
            )
        self._last_kind[run] = kind
        self._waiting[run].append(text)
        self._advance()

    def finish(self, run: int) -> None:
        """Mark a run as finished."""
        self._is_done[run] = True
        self._advance()

    def _advance(self) -> None:
        while self._current < len(self._headings):
            run = self._current
            if not self._is_open:
                self._open(run)
            self._write("".join(self._waiting[run]))
            self._waiting[run] = []
            if not self._is_done[run]:
                return
            self._write("\n")
            self._current, self._is_open = run + 1, False

    def _open(self, run: int) -> None:
        if len(self._headings) > 1:
            gap = "\n" if run else ""
            self._write(f"{gap}{printable(self._headings[run])}\n")
        self._is_open = True


def comparison_object(
    effect: Any, prompt: str, decode: Callable[[Sequence[int]], str]
) -> dict[str, Any]:
    """Return the JSON object of one comparison of an adapter with the base model."""
    return {
        "prompt": prompt,
        "adapter": effect.adapter,
        "takes_effect": effect.takes_effect,
        "mean_prompt_delta": effect.mean_prompt_delta,
        "mean_continuation_delta": effect.mean_continuation_delta,
        "prompt_deltas": list(effect.prompt_deltas),
        "continuation_deltas": list(effect.continuation_deltas),
        "first_difference": effect.first_difference,
        "base": {"token_ids": effect.base.token_ids, "text": decode(effect.base.token_ids)},
        "adapted": {
            "token_ids": effect.adapted.token_ids,
            "text": decode(effect.adapted.token_ids),
        },
    }


def render_comparisons(comparisons: Sequence[dict[str, Any]]) -> Text:
    """Return base and adapter side by side, and whether the adapter takes effect."""
    text = Text()
    for comparison in comparisons:
        width = max(10, len(comparison["adapter"]) + 2)
        rows = [
            ("prompt", comparison["prompt"]),
            ("base", comparison["base"]["text"]),
            (comparison["adapter"], comparison["adapted"]["text"]),
            ("change", _change(comparison)),
            ("verdict", _verdict(comparison)),
        ]
        for label, value in rows:
            style = "bold" if label != "verdict" or comparison["takes_effect"] else "bold red"
            text.append(f"{printable(label):<{width}}", style).append(f"{printable(value)}\n")
        text.append("\n")
    text.rstrip()
    return text


def _change(comparison: dict[str, Any]) -> str:
    parts = []
    for key, where in (
        ("mean_prompt_delta", f"{len(comparison['prompt_deltas'])} prompt tokens"),
        ("mean_continuation_delta", "the base model's continuation"),
    ):
        if comparison[key] is not None:
            parts.append(f"{comparison[key]:.4g} nats on {where}")
    return "mean |Δ log-probability| " + ", ".join(parts)


def _verdict(comparison: dict[str, Any]) -> str:
    if not comparison["takes_effect"]:
        return "the adapter has no effect: every log-probability is the base model's"
    first = comparison["first_difference"]
    if first is None:
        return "the adapter takes effect; the generated tokens are the same"
    return f"the adapter takes effect; the first differing token is number {first + 1}"
