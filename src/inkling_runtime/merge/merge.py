"""A planned merge as a value: which tensors get a delta, and all files besides.

Outputs are lazy arrays: nothing is read or computed here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from inkling_runtime.adapter.adapter import Adapter
from inkling_runtime.adapter.outputs import Output
from inkling_runtime.adapter.safetensors_file import SafetensorsFile
from inkling_runtime.adapter.site_pairs import SitePairs
from inkling_runtime.merge.base_folder import BaseFolder
from inkling_runtime.merge.targets import Target
from inkling_runtime.model.checkpoint_names import Layout

COPIED_PER_SECOND = 1_000_000_000
ADDED_PER_SECOND = 300_000_000
"""Bytes of base tensors, for the expected time: what a usual disk and two busy cores do."""


@dataclass(frozen=True, slots=True)
class Addend:
    """An adapter, its weight in the sum, and its factors (`deltas.weigh`)."""

    adapter: Adapter
    weight: float
    pairs: SitePairs


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of the result: its outputs in the order of the data, as in the base's file."""

    source: SafetensorsFile
    outputs: tuple[Output, ...]
    targets: Mapping[str, Target]
    """The sites of each tensor that gets a delta, by its name."""

    @property
    def is_changed(self) -> bool:
        """Whether any of its tensors gets a delta; the file is copied otherwise."""
        return bool(self.targets)

    @property
    def changed_bytes(self) -> int:
        """Bytes of the tensors that get a delta."""
        return sum(self.source.tensors[name].nbytes for name in self.targets)


@dataclass(frozen=True, slots=True)
class Merge:
    """A planned merge: shards in the order of their names, files that are copied besides."""

    base: BaseFolder
    layout: Layout
    addends: tuple[Addend, ...]
    shards: tuple[Shard, ...]
    notes: tuple[str, ...]
    """What a user should know before it runs."""

    @property
    def nbytes(self) -> int:
        """Bytes of all shards."""
        return sum(shard.source.file_size for shard in self.shards)

    @property
    def changed_bytes(self) -> int:
        """Bytes of the tensors that get a delta."""
        return sum(shard.changed_bytes for shard in self.shards)

    @property
    def num_tensors(self) -> int:
        """Tensors of the base."""
        return sum(len(shard.outputs) for shard in self.shards)

    @property
    def num_changed(self) -> int:
        """Tensors that get a delta."""
        return sum(len(shard.targets) for shard in self.shards)

    @property
    def expected_seconds(self) -> float:
        """How long it takes where nothing else is done."""
        copied = self.nbytes - self.changed_bytes
        return copied / COPIED_PER_SECOND + self.changed_bytes / ADDED_PER_SECOND
