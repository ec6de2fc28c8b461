"""Rules for `inkling explain`, for people and as JSON."""

import re
import textwrap
from collections.abc import Iterable
from typing import Any

from rich.text import Text

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.rule import Rule
from inkling_cli.checks.stage import Stage

_WIDTH = 80
_ENGINES = {engine.value: engine for engine in Engine}

STAGE_MEANINGS = {
    Stage.COMMAND_LINE: "its argument parser does not take the words",
    Stage.ENGINE_CONFIG: "it does not build its configuration from the options",
    Stage.SERVER_ARGS: "it does not take the options together",
    Stage.MODEL: "it does not build the model",
    Stage.WRAP: "it cannot put adapter slots around the model's layers",
    Stage.STARTUP: "it cannot set up its adapter slots or load its first adapters",
    Stage.ADAPTER_LOAD: "it refuses the adapter; one of its start-up adapters ends the start",
    Stage.DYNAMIC_LOAD: "it refuses the adapter that is loaded while it runs",
    Stage.FIRST_USE: "it fails at the first request with the adapter",
    Stage.SERVED: "the server answers, but not as meant",
}
"""What happens at each stage, in the order of a server's life."""


def render_rule(rule: Rule[Any]) -> Text:
    """Return a rule's identity and its docstring, wrapped for a terminal."""
    text = Text()
    text.append(f"{rule.code} {rule.name}", "bold")
    text.append(f" ({rule.severity.value}, {held_for(rule)})\n")
    if met := met_at(rule):
        text.append(f"{met}\n")
    text.append("\n")
    paragraphs = (" ".join(paragraph.split()) for paragraph in rule.text.split("\n\n"))
    body = "\n\n".join(textwrap.fill(p, _WIDTH, break_on_hyphens=False) for p in paragraphs)
    for index, part in enumerate(re.split(r"\*([^*]+)\*(?=:)", body)):
        text.append(part, "bold" if index % 2 else "")
    return text


def held_for(rule: Rule[Any]) -> str:
    """Return which engine and versions a rule holds for: `vllm, from 0.33.0`."""
    if rule.engine is None:
        return "any engine"
    engine = _ENGINES.get(rule.engine)
    since = rule.since or (engine.known_versions[0] if engine else None)
    words = [
        rule.engine,
        f"from {since}" if since else "",
        f"before {rule.before}" if rule.before else "",
    ]
    return ", ".join(filter(None, words))


def met_at(rule: Rule[Any]) -> str | None:
    """Return when the engine meets the defect, in words; None where no engine does."""
    if rule.stage is None:
        return None
    engine = _ENGINES.get(rule.engine or "")
    name = engine.display_name if engine else "The engine"
    return f"{name} meets it at {rule.stage}: {STAGE_MEANINGS[rule.stage]}."


def render_rule_list(rules: Iterable[Rule[Any]]) -> Text:
    """Return one line for each rule."""
    lines = [f"{r.code}  {r.severity.value:<7}  {r.engine or 'any':<6}  {r.name}" for r in rules]
    return Text("\n".join(lines))


def rule_object(rule: Rule[Any]) -> dict[str, Any]:
    """Return a rule as JSON."""
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": rule.severity.value,
        "engine": rule.engine,
        "since": rule.since,
        "before": rule.before,
        "stage": rule.stage and rule.stage.value,
        "explanation": rule.text,
    }
