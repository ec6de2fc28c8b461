"""All rules of all rooms: for `inkling explain`, for SARIF's metadata and for docs/rules.md.

A new room of rules adds its registry here.
"""

import difflib
from collections.abc import Iterator
from typing import Any

from inkling_cli.checks.adapter import ADAPTER_RULES
from inkling_cli.checks.adapter.files import FOLDER_RULES
from inkling_cli.checks.launch import LAUNCH_RULES
from inkling_cli.checks.rule import Registry, Rule

REGISTRIES: tuple[tuple[str, Registry[Any]], ...] = (
    ("Launches", LAUNCH_RULES),
    ("Folders of adapters", FOLDER_RULES),
    ("Adapters", ADAPTER_RULES),
)
"""What each registry's rules are about, and the registry."""


def iter_rules() -> Iterator[Rule[Any]]:
    """Yield every rule in the order of codes within its room."""
    for _, registry in REGISTRIES:
        yield from (registry.rules[code] for code in sorted(registry.rules))


def find_rule(text: str) -> Rule[Any] | None:
    """Return the rule with this code or name, whatever its case."""
    wanted = text.lower()
    return next((r for r in iter_rules() if wanted in (r.code.lower(), r.name)), None)


def nearest_rule(text: str) -> Rule[Any] | None:
    """Return the rule whose code or name begins with a text or looks most like it."""
    names = {key: rule for rule in iter_rules() for key in (rule.code.lower(), rule.name)}
    wanted = text.lower()
    near = [name for name in names if wanted and name.startswith(wanted)]
    near = near or difflib.get_close_matches(wanted, names, n=1, cutoff=0.6)
    return names[near[0]] if near else None
