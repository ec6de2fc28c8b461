"""What `inkling check-adapter` says of the adapters themselves."""

from collections.abc import Sequence
from typing import Any

from inkling_cli.checks.adapter import AdapterSubject, Consumer


def what_was_checked(subjects: Sequence[AdapterSubject], consumers: Sequence[Consumer]) -> str:
    """Return the subjects in words: `82 modules of 2 adapters for vLLM 0.33.0`."""
    modules = sum(len(subject.adapter.modules) for subject in subjects)
    of = f" of {len(subjects)} adapters" if len(subjects) > 1 else ""
    return f"{modules} modules{of} for {', '.join(c.display_name for c in consumers)}"


def adapter_object(subject: AdapterSubject) -> dict[str, Any]:
    """Return an adapter as a part of the JSON object."""
    return {"path": subject.path, "dialect": subject.adapter.dialect.name}
