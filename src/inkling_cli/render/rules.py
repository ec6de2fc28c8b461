"""Rules for `inkling explain`, for people and as JSON."""

import re
import textwrap
from collections.abc import Iterable
from typing import Any

from rich.text import Text

from inkling_cli.checks.rule import Rule

_WIDTH = 80


def render_rule(rule: Rule[Any]) -> Text:
    """Return a rule's identity and its docstring, wrapped for a terminal."""
    text = Text()
    text.append(f"{rule.code} {rule.name}", "bold")
    text.append(f" ({rule.severity.value}, {rule.engine or 'any engine'})\n\n")
    paragraphs = (" ".join(paragraph.split()) for paragraph in rule.text.split("\n\n"))
    body = "\n\n".join(textwrap.fill(p, _WIDTH, break_on_hyphens=False) for p in paragraphs)
    for index, part in enumerate(re.split(r"\*([^*]+)\*(?=:)", body)):
        text.append(part, "bold" if index % 2 else "")
    return text


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
        "explanation": rule.text,
    }
