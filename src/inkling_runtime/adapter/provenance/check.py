"""What a written adapter differs in from its record, as values. Found by `run_check`."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from inkling_runtime.adapter.difference import ConfigDifference
from inkling_runtime.adapter.provenance.proven import Proven
from inkling_runtime.adapter.provenance.record import Record


class Change(StrEnum):
    """What became of a tensor since it was recorded."""

    CHANGED = "changed"
    MISSING = "missing"
    ADDED = "added"


@dataclass(frozen=True, slots=True)
class TensorChange:
    """A tensor that is not what the record says."""

    name: str
    change: Change
    found: str | None
    expected: str | None


@dataclass(frozen=True, slots=True)
class SourceCheck:
    """A source beside its record. `is_there` is False where the recorded path holds no adapter.

    `in_place` says that it was converted in place, which can be taken back.
    """

    path: str
    is_there: bool
    config_differs: bool = False
    tensors: tuple[TensorChange, ...] = ()
    in_place: bool = False

    @property
    def is_clean(self) -> bool:
        """Whether nothing differs, as far as it is there."""
        return not self.config_differs and not self.tensors


@dataclass(frozen=True, slots=True)
class DeltaCheck:
    """The delta of a site beside the source's; NOTHING where it is not that.

    `relative` is how far both are apart; None where they hold NaN or infinity.
    """

    site: str
    proven: Proven
    relative: float | None


@dataclass(frozen=True, slots=True)
class Check:
    """The answer of `inkling verify`.

    Attributes:
        folder: what was checked.
        record: what it should be.
        tensors: what differs from the record.
        config_differs: whether adapter_config.json has other bytes.
        config_fault: why it says nothing of the effect, or asks for more than plain LoRA, if so.
        config: keys that decide the effect and have other values.
        sources: the adapters it was made of.
        deltas: of all sites, where they were compared.
        not_compared: why they were not, else None.
        in_place: whether the folder was converted in place since, which can be taken back.
    """

    folder: Path
    record: Record
    tensors: tuple[TensorChange, ...]
    config_differs: bool
    config_fault: str | None
    config: tuple[ConfigDifference, ...]
    sources: tuple[SourceCheck, ...]
    deltas: tuple[DeltaCheck, ...]
    not_compared: str | None
    in_place: bool

    @property
    def deltas_apart(self) -> tuple[DeltaCheck, ...]:
        """The deltas that are not the source's."""
        return tuple(delta for delta in self.deltas if delta.proven is Proven.NOTHING)

    @property
    def is_as_recorded(self) -> bool:
        """Whether the folder itself is what was written."""
        return not self.tensors and not self.config_differs

    @property
    def is_clean(self) -> bool:
        """Whether nothing differs."""
        are_sources_clean = all(source.is_clean for source in self.sources)
        return self.is_as_recorded and not self.deltas_apart and are_sources_clean
