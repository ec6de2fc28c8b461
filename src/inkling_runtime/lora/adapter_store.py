"""Which adapters are known, which of them have a slot on the device, and which may lose it.

Names are the user's, contents are what counts: a slot belongs to a content, so that an adapter
under two names is on the device once, and one that is loaded anew under its old name does not
disturb the sequences that still run with what it was. On the host an adapter is where its factors
come from (best its files: `LazyFactors`) and the hash of what they were.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from inkling_runtime.adapter.factors import SiteFactors
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.sites import Site
from inkling_runtime.errors import InklingError, format_names
from inkling_runtime.lora.content_hash import HashedFactors
from inkling_runtime.lora.load import iter_fitting


class SlotLoader(Protocol):
    """Who has the slots."""

    def load(self, slot: int, factors: Mapping[Site, SiteFactors]) -> None:
        """Put an adapter into a slot; an `InklingError` leaves the slot as it was."""

    def clear(self, slot: int) -> None:
        """Empty a slot."""


@dataclass(frozen=True, slots=True)
class Known:
    """An adapter that was given a name."""

    factors: Mapping[Site, SiteFactors]
    content: str


class AdapterStore:
    """The adapters of a model.

    Args:
        loader: has the slots.
        num_slots: how many.
        spec: the model.
    """

    def __init__(self, loader: SlotLoader, num_slots: int, spec: ModelSpec) -> None:
        self._loader = loader
        self._spec = spec
        self._known: dict[str, Known] = {}
        self._pinned: set[str] = set()
        self._contents: list[str | None] = [None] * num_slots
        self._users: Counter[int] = Counter()
        self._last_used = [0] * num_slots
        self._clock = 0

    @property
    def names(self) -> list[str]:
        """Names of the known adapters, in the order in which they came."""
        return list(self._known)

    @property
    def loaded(self) -> list[str]:
        """Names of the adapters that are on the device now."""
        return [name for name, known in self._known.items() if known.content in self._contents]

    def content_of(self, name: str | None) -> str | None:
        """Return the content hash of a known adapter; None for no name.

        Raises:
            InklingError: no adapter of this name is known.
        """
        return None if name is None else self._require(name).content

    def add(self, name: str, factors: Mapping[Site, SiteFactors]) -> None:
        """Make an adapter known, and load it if a slot is free.

        What had the name before keeps its slot until the last sequence that runs with it ends.

        Raises:
            InklingError: the factors do not fit the model; the name stays what it was.
        """
        hashed = HashedFactors(factors)
        slot = self._free_slot()
        if slot is None:
            for _ in iter_fitting(hashed, self._spec):
                pass
        else:
            self._loader.load(slot, hashed)
        content = hashed.content_hash()
        if slot is not None:
            if content in self._contents:
                self._loader.clear(slot)
            else:
                self._occupy(slot, content)
        self._known[name] = Known(factors, content)
        self._clear_nameless()

    def remove(self, name: str) -> None:
        """Forget an adapter; sequences that run with it finish.

        Raises:
            InklingError: no adapter of this name is known.
        """
        self._require(name)
        del self._known[name]
        self._pinned.discard(name)
        self._clear_nameless()

    def pin(self, name: str) -> None:
        """Load an adapter if it is not, and keep it loaded.

        Raises:
            InklingError: it is not known, cannot be loaded, or no slot can be emptied for it.
        """
        known = self._require(name)
        if self._slot_of(name, known) is None:
            raise InklingError(
                f"no slot can be emptied for `{name}`, all {len(self._contents)} are in use",
                "wait for running requests, or allow more with `max_loras`",
            )
        self._pinned.add(name)

    def unpin(self, name: str) -> None:
        """Undo `pin`.

        Raises:
            InklingError: it is not known.
        """
        self._require(name)
        self._pinned.discard(name)

    def acquire(self, name: str) -> int | None:
        """Return the slot of an adapter, which stays its own until `release`.

        None if every slot is in use and one will be free later.

        Raises:
            InklingError: it is not known, cannot be loaded, is no longer what it was, or every
                slot is pinned.
        """
        slot = self._slot_of(name, self._require(name))
        if slot is not None:
            self._users[slot] += 1
            self._touch(slot)
        elif all(content in self._pinned_contents() for content in self._contents):
            raise InklingError(
                f"`{name}` has no slot, all {len(self._contents)} are pinned",
                "unpin an adapter, or allow more with `max_loras`",
            )
        return slot

    def release(self, slot: int) -> None:
        """Undo one `acquire`."""
        self._users -= Counter([slot])
        self._clear_nameless()

    def reset(self) -> None:
        """Undo every `acquire`."""
        self._users.clear()
        self._clear_nameless()

    def _require(self, name: str) -> Known:
        if name not in self._known:
            known = f"loaded are {format_names(self.names)}" if self._known else "none is loaded"
            raise InklingError(f"no adapter named `{name}` is loaded; {known}")
        return self._known[name]

    def _slot_of(self, name: str, known: Known) -> int | None:
        """Return an adapter's slot, loaded if need be; None if no slot can be emptied."""
        if known.content in self._contents:
            return self._contents.index(known.content)
        slot = self._free_slot()
        if slot is None:
            slot = self._oldest_idle_slot()
        if slot is not None:
            self._empty(slot)
            self._load_again(name, known, slot)
        return slot

    def _load_again(self, name: str, known: Known, slot: int) -> None:
        hashed = HashedFactors(known.factors)
        changed = f"the files of `{name}` changed since it was loaded"
        hint = f"load `{name}` again to run it as it is now"
        try:
            self._loader.load(slot, hashed)
        except InklingError as error:
            raise InklingError(f"{changed}: {error.message}", hint) from error
        if hashed.content_hash() != known.content:
            self._loader.clear(slot)
            raise InklingError(f"{changed}, expected the same numbers", hint)
        self._occupy(slot, known.content)

    def _free_slot(self) -> int | None:
        return self._contents.index(None) if None in self._contents else None

    def _oldest_idle_slot(self) -> int | None:
        pinned = self._pinned_contents()
        idle = [
            slot
            for slot, content in enumerate(self._contents)
            if not self._users[slot] and content not in pinned
        ]
        return min(idle, key=self._last_used.__getitem__, default=None)

    def _pinned_contents(self) -> set[str | None]:
        return {self._known[name].content for name in self._pinned}

    def _occupy(self, slot: int, content: str) -> None:
        self._contents[slot] = content
        self._touch(slot)

    def _touch(self, slot: int) -> None:
        self._clock += 1
        self._last_used[slot] = self._clock

    def _clear_nameless(self) -> None:
        """Empty the slots whose content has neither a name nor a user any more."""
        named = {known.content for known in self._known.values()}
        for slot, content in enumerate(self._contents):
            if content is not None and content not in named and not self._users[slot]:
                self._empty(slot)

    def _empty(self, slot: int) -> None:
        if self._contents[slot] is not None:
            self._contents[slot] = None
            self._loader.clear(slot)
