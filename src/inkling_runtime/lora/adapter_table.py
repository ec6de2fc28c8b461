"""The adapters on the device, by slot: what the layers of the model read.

Not who owns a slot, nor for how long: that is decided by whoever calls. A site that no adapter
has is absent, so that its layer runs no LoRA op at all.
"""

from collections.abc import Container, Mapping, Sequence

import torch

from inkling_runtime.adapter.factors import SiteFactors
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.sites import HEAD_SITE, Site, SiteKind
from inkling_runtime.lora.load import Cut, load_adapter
from inkling_runtime.ops.lora_slots import LoraSlots


class AdapterTable:
    """The slots of a model.

    Args:
        spec: the model.
        num_slots: adapters that can be on the device at a time.
        device: where.
        dtype: the model's.
        cut: what of each site is held here; None: all of it.
    """

    def __init__(
        self,
        spec: ModelSpec,
        num_slots: int,
        device: torch.device,
        dtype: torch.dtype,
        cut: Cut | None = None,
    ) -> None:
        self.spec = spec
        self.num_slots = num_slots
        self.device = device
        self.dtype = dtype
        self._cut = cut
        self.version = 0
        """Changes whenever a slot's adapter does."""
        self._sites: dict[Site, LoraSlots] = {}
        self._layers: list[dict[SiteKind, LoraSlots]] = [{} for _ in range(spec.num_layers)]
        self._head: dict[SiteKind, LoraSlots] = {}

    @property
    def layers(self) -> Sequence[Mapping[SiteKind, LoraSlots]]:
        """The adapted sites of each layer."""
        return self._layers

    @property
    def head(self) -> Mapping[SiteKind, LoraSlots]:
        """The head's site, empty if no adapter has it."""
        return self._head

    def load(self, slot: int, factors: Mapping[Site, SiteFactors]) -> None:
        """Copy an adapter to the device and put it into a slot; what was there is gone.

        Raises:
            InklingError: it does not fit the model; the slot is as it was.
        """
        pairs = load_adapter(factors, self.spec, self.device, self.dtype, self._cut)
        # Sites that stay keep their tables, and with them the graphs that were captured.
        self._clear(slot, keep=pairs)
        for site, pair in pairs.items():
            self._slots_of(site).put(slot, pair)

    def clear(self, slot: int) -> None:
        """Empty a slot."""
        self._clear(slot, keep=())

    def _clear(self, slot: int, keep: Container[Site]) -> None:
        self.version += 1
        for site, slots in list(self._sites.items()):
            slots.clear(slot)
            if not slots and site not in keep:
                del self._sites[site]
                del self._place(site)[site.kind]

    def _slots_of(self, site: Site) -> LoraSlots:
        if site not in self._sites:
            self._sites[site] = LoraSlots([None] * self.num_slots, self.device)
            self._place(site)[site.kind] = self._sites[site]
        return self._sites[site]

    def _place(self, site: Site) -> dict[SiteKind, LoraSlots]:
        return self._head if site == HEAD_SITE else self._layers[site.layer]
