"""A source → its launches, what is known here of each, and what was found in it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from inkling_cli.checks.finding import Finding, sort_findings
from inkling_cli.checks.launch.launch import AdapterRef, Launch
from inkling_cli.checks.launch.parse.given import NOTHING, Given
from inkling_cli.checks.launch.read import LaunchSource, launches_of
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject, ReadAdapter, resolve_launch
from inkling_runtime.adapter.adapter import read_adapter


@dataclass(frozen=True, slots=True)
class Judged:
    """A launch with what was found in it, worst first."""

    subject: LaunchSubject
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Judge:
    """Checks launches with what the user says beside them; reads each adapter once.

    Attributes:
        given: variables, engine and version.
        model: a folder or config.json to read in place of the model that a launch names.
        adapters: further adapters, or where those of a launch lie on this machine.
    """

    given: Given = NOTHING
    model: str | None = None
    adapters: tuple[AdapterRef, ...] = ()
    read: ReadAdapter = field(default_factory=lambda: cache(read_adapter), repr=False)

    def source(self, source: LaunchSource) -> tuple[Judged, ...]:
        """Return the launches of a source, checked.

        Raises:
            InklingError: it holds no launch, or what the user names is not there.
        """
        return self.launches(launches_of(source, self.given))

    def launches(self, launches: Sequence[Launch]) -> tuple[Judged, ...]:
        """Return launches, checked."""
        return tuple(map(self._judge, launches))

    def text(self, source: LaunchSource, text: str) -> tuple[Judged, ...]:
        """Return the launches of a source whose text has changed, checked."""
        return self.source(replace(source, text=text))

    def _judge(self, launch: Launch) -> Judged:
        subject = resolve_launch(
            launch, self.given.version, self.model, self.adapters, read=self.read
        )
        subject = replace(subject, gpu_memory=self.given.gpu_memory)
        found = LAUNCH_RULES.check(subject, subject.engine, subject.described_version)
        return Judged(subject, sort_findings(found))
