"""A verdict as data: what one consumer does with one adapter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from inkling_cli.checks.adapter import Consumer
from inkling_cli.checks.effect import Effect, Fate, modules_of
from inkling_cli.checks.launch.requirements import Requirements
from inkling_cli.checks.stage import Stage


class Outcome(StrEnum):
    """A verdict in one word.

    applied: every module, as it is meant. partial: some are dropped or misapplied. none: no
    module has the effect that it is meant to have. refused: the consumer takes nothing of it.
    not_checked: what decides it is not known here; never a pass.
    """

    APPLIED = "applied"
    PARTIAL = "partial"
    NONE = "none"
    REFUSED = "refused"
    NOT_CHECKED = "not_checked"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one consumer does with one adapter.

    Attributes:
        adapter: its folder.
        consumer: who is to apply it.
        version: of the consumer, as judged; None for this tool's own runtime.
        effects: one for each module on disk, in order of names; empty where it was not read.
        stage: where an engine refuses it; None where it does not.
        launch: the command that was judged, where it is the best one for this adapter and not
            the user's own; else None.
        requires: what the launch must pass.
        slot_bytes: memory of one adapter slot on one GPU, by kind of module.
        not_checked: what could not be judged, in words.
    """

    adapter: str
    consumer: Consumer
    version: str | None
    effects: tuple[Effect, ...] = ()
    stage: Stage | None = None
    launch: str | None = None
    requires: Requirements = field(default_factory=Requirements)
    slot_bytes: Mapping[str, int] = field(default_factory=dict)
    not_checked: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The verdict in one word."""
        fates = {effect.fate for effect in self.effects if effect.is_meant}
        if self.stage is not None or Fate.REFUSED in fates:
            return Outcome.REFUSED
        if fates & {Fate.DROPPED, Fate.MISAPPLIED}:
            return Outcome.NONE if fates == {Fate.DROPPED} else Outcome.PARTIAL
        return Outcome.APPLIED if fates == {Fate.APPLIED} else Outcome.NOT_CHECKED

    def modules(self, fate: Fate) -> list[str]:
        """Return the modules of one fate."""
        return modules_of(self.effects, fate)


def refused(effects: Sequence[Effect], reason: str) -> tuple[Effect, ...]:
    """Return the effects of an adapter that is refused whole: each module keeps its own reason."""
    return tuple(
        effect
        if effect.fate is Fate.REFUSED
        else replace(effect, fate=Fate.REFUSED, cause="", reason=reason)
        for effect in effects
    )
