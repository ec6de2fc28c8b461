"""Rules and their registry.

A rule is a generator function over one kind of subject (a launch, an adapter beside a model) with
a code, a name, a severity and the engine it speaks of; its docstring has the headings *What it
checks*, *Why it matters* and *How to fix*. Registering happens at import, so a module of rules
only has to be imported by its room's `__init__`. Codes are never reused.

Engine versions are data: `since` and `before` bound the versions for which a rule holds. A rule
also knows the stage at which the engine meets the defect; a defect may know better.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from inkling_cli.checks.engine import holds_between
from inkling_cli.checks.finding import Change, Finding, Location, Severity
from inkling_cli.checks.stage import Stage

Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True)
class Defect:
    """What a rule yields: a finding without the rule's own identity."""

    message: str
    help: str | None = None
    location: Location = field(default_factory=Location)
    fix: dict[str, str | None] | None = None
    change: Change | None = None
    stage: Stage | None = None
    """Where the engine meets it, if not where the rule says."""
    severity: Severity | None = None
    """How bad it is, if not as bad as the rule says."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[Subject]):
    """A check with its identity. `engine` is None for rules that hold for every engine."""

    code: str
    name: str
    severity: Severity
    engine: str | None
    since: str | None
    before: str | None
    stage: Stage | None
    check: Callable[[Subject], Iterator[Defect]]

    @property
    def text(self) -> str:
        """The docstring without its indentation: what it checks, why it matters, how to fix."""
        return inspect.cleandoc(self.check.__doc__ or "")

    def holds_for(self, version: str | None) -> bool:
        """Return whether the rule holds for this version of its engine (None: the newest)."""
        return holds_between(version, self.since, self.before)

    def findings(self, subject: Subject, version: str | None = None) -> Iterator[Finding]:
        """Yield the findings of this rule on a subject."""
        for defect in self.check(subject):
            yield Finding(
                self.code,
                self.name,
                defect.severity or self.severity,
                defect.message,
                defect.help,
                defect.location,
                self.engine,
                version if self.engine else None,
                defect.fix,
                defect.change,
                defect.stage or self.stage,
            )


class Registry(Generic[Subject]):
    """The rules over one kind of subject, by code."""

    def __init__(self) -> None:
        self.rules: dict[str, Rule[Subject]] = {}

    def rule(
        self,
        code: str,
        name: str,
        severity: Severity,
        *,
        engine: str | None = None,
        since: str | None = None,
        before: str | None = None,
        stage: Stage | None = None,
    ) -> Callable[[Callable[[Subject], Iterator[Defect]]], Callable[[Subject], Iterator[Defect]]]:
        """Register the decorated generator function as a rule."""
        if not re.fullmatch(r"[A-Z]{3}\d{3}", code):
            raise ValueError(f"rule code {code!r} is not three letters and three digits")

        def register(check: Callable[[Any], Iterator[Defect]]) -> Callable[[Any], Iterator[Defect]]:
            if code in self.rules or any(rule.name == name for rule in self.rules.values()):
                raise ValueError(f"rule {code} {name} is registered twice")
            self.rules[code] = Rule(code, name, severity, engine, since, before, stage, check)
            return check

        return register

    def check(
        self, subject: Subject, engine: str | None = None, version: str | None = None
    ) -> Iterator[Finding]:
        """Yield the findings of every rule that holds for this engine and version."""
        yield from self.check_for(subject, {} if engine is None else {engine: version})

    def check_for(self, subject: Subject, versions: Mapping[str, str | None]) -> Iterator[Finding]:
        """Yield the findings of every rule that holds for any of several engines, each asked once.

        Args:
            subject: what the rules look at.
            versions: engine → its version; None for the newest.
        """
        for rule in self.rules.values():
            version = versions.get(rule.engine) if rule.engine else None
            if (rule.engine is None or rule.engine in versions) and rule.holds_for(version):
                yield from rule.findings(subject, version)
