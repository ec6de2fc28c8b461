"""Adapter slots: which adapters are loaded, under which ids, and which are in use.

An id is a place; it is reused once its adapter is unloaded. A sequence pins its adapter while it
runs, so that nobody can take the tensors away under it.
"""

from collections.abc import Sequence

from inkling_runtime.adapter.sites import HEAD_SITE, Site, SiteKind
from inkling_runtime.errors import InklingError, format_names
from inkling_runtime.lora.load import LoadedAdapter
from inkling_runtime.ops.lora_pair import LoraPair
from inkling_runtime.ops.token_adapters import NO_ADAPTER


class AdapterSlots:
    """The loaded adapters of a model.

    Args:
        num_layers: layers of the model.
    """

    def __init__(self, num_layers: int) -> None:
        self._ids: dict[str, int] = {}
        self._pins: dict[int, int] = {}
        self._num_slots = 0
        self._slots: dict[Site, list[LoraPair | None]] = {}
        self._layers: list[dict[SiteKind, list[LoraPair | None]]] = [{} for _ in range(num_layers)]
        self._head: dict[SiteKind, list[LoraPair | None]] = {}

    @property
    def names(self) -> list[str]:
        """Names of the loaded adapters, in the order of their slots."""
        return sorted(self._ids, key=self._ids.__getitem__)

    @property
    def layers(self) -> Sequence[dict[SiteKind, list[LoraPair | None]]]:
        """The adapted sites of each layer; lists are indexed by adapter id."""
        return self._layers

    @property
    def head(self) -> dict[SiteKind, list[LoraPair | None]]:
        """The head's site, empty if no adapter has it."""
        return self._head

    def require_absent(self, name: str) -> None:
        """Require that no adapter of this name is loaded.

        Raises:
            InklingError: there is one.
        """
        if name in self._ids:
            raise InklingError(f"an adapter named `{name}` is already loaded")

    def add(self, name: str, adapter: LoadedAdapter) -> int:
        """Put an adapter in a slot and return its id.

        Raises:
            InklingError: an adapter of this name is loaded.
        """
        self.require_absent(name)
        used = set(self._ids.values())
        slot = next(i for i in range(len(used) + 1) if i not in used)
        if slot == self._num_slots:
            self._num_slots += 1
            for pairs in self._slots.values():
                pairs.append(None)
        for site, pair in adapter.pairs.items():
            self._pairs_of(site)[slot] = pair
        self._ids[name] = slot
        self._pins[slot] = 0
        return slot

    def remove(self, name: str) -> None:
        """Empty an adapter's slot.

        Raises:
            InklingError: no adapter of this name is loaded, or a sequence uses it.
        """
        slot = self._require_id(name)
        if self._pins[slot]:
            raise InklingError(
                f"adapter `{name}` is used by {self._pins[slot]} running sequences",
                "finish or close their stream first",
            )
        del self._ids[name], self._pins[slot]
        for site, pairs in list(self._slots.items()):
            pairs[slot] = None
            if not any(pairs):
                self._drop(site)

    def require(self, name: str | None) -> int:
        """Return the id of a loaded adapter; -1 for no name.

        Raises:
            InklingError: no adapter of this name is loaded.
        """
        return NO_ADAPTER if name is None else self._require_id(name)

    def pin(self, adapter: int) -> None:
        """Keep an adapter loaded until `unpin`; -1 is nothing to keep."""
        if adapter != NO_ADAPTER:
            self._pins[adapter] += 1

    def unpin(self, adapter: int) -> None:
        """Undo one `pin`."""
        if adapter != NO_ADAPTER:
            self._pins[adapter] -= 1

    def _require_id(self, name: str) -> int:
        if name not in self._ids:
            loaded = f"loaded are {format_names(self.names)}" if self._ids else "none is loaded"
            raise InklingError(f"no adapter named `{name}` is loaded; {loaded}")
        return self._ids[name]

    def _pairs_of(self, site: Site) -> list[LoraPair | None]:
        if site not in self._slots:
            self._slots[site] = [None] * self._num_slots
            sites = self._head if site == HEAD_SITE else self._layers[site.layer]
            sites[site.kind] = self._slots[site]
        return self._slots[site]

    def _drop(self, site: Site) -> None:
        """Forget a site that no adapter has any more."""
        del self._slots[site]
        del (self._head if site == HEAD_SITE else self._layers[site.layer])[site.kind]
