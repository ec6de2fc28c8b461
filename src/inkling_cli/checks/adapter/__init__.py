"""Checks of an adapter, alone and against a base model, and of what each consumer does with it."""

from inkling_cli.checks.adapter import consumers, soundness
from inkling_cli.checks.adapter.subject import (
    ADAPTER_RULES,
    AdapterSubject,
    Consumer,
    check_adapter,
    make_subject,
    read_subject,
)

__all__ = [
    "ADAPTER_RULES",
    "AdapterSubject",
    "Consumer",
    "check_adapter",
    "consumers",
    "make_subject",
    "read_subject",
    "soundness",
]
