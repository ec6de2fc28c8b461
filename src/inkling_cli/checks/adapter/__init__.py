"""Checks of an adapter, alone and against a base model, and of what each consumer does with it."""

from inkling_cli.checks.adapter import (
    config,
    deltas,
    layout,
    names,
    shapes,
    soundness,
    values,
)
from inkling_cli.checks.adapter.peft import config_rules, rules
from inkling_cli.checks.adapter.subject import (
    ADAPTER_RULES,
    AdapterSubject,
    Consumer,
    check_adapter,
    check_itself,
    make_subject,
    read_subject,
)

__all__ = [
    "ADAPTER_RULES",
    "AdapterSubject",
    "Consumer",
    "check_adapter",
    "check_itself",
    "config",
    "config_rules",
    "deltas",
    "layout",
    "make_subject",
    "names",
    "read_subject",
    "rules",
    "shapes",
    "soundness",
    "values",
]
