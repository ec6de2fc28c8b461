"""Who computes a step: the model, its cache and its adapters on one device.

Decides nothing: which tokens, which blocks and which adapter slots comes in plain numbers
(`StepInput`). The executor of several ranks has the same methods.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from inkling_runtime.adapter.factors import SiteFactors
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.sites import Site
from inkling_runtime.cache.cache_tensors import CacheSizes, CacheTensors, LayerCache
from inkling_runtime.engine.batch import BatchBuilder
from inkling_runtime.engine.cuda_graph import DecodeGraphs
from inkling_runtime.engine.step_input import StepInput
from inkling_runtime.lora.adapter_table import AdapterTable
from inkling_runtime.model.inkling import Inkling
from inkling_runtime.ops.token_adapters import TokenAdapters


class Executor:
    """Runs steps of a model.

    Args:
        model: the base model, or one rank's part of it.
        adapters: its adapter slots.
        spec: the sizes of that part.
        notes: what the user should know about the checkpoint, a sentence each.
    """

    def __init__(
        self, model: Inkling, adapters: AdapterTable, spec: ModelSpec, notes: Sequence[str] = ()
    ) -> None:
        self.model = model
        self.adapters = adapters
        self.notes = notes
        self.spec = spec
        self._layers: list[LayerCache] = []
        self._graphs: DecodeGraphs | None = None
        self._batches = BatchBuilder(model.device)
        self._hidden: Tensor | None = None

    def allocate(self, sizes: CacheSizes) -> None:
        """Make the cache; before the first step."""
        cache = CacheTensors(self.spec, sizes, self.model.device, self.adapters.dtype)
        self._layers = cache.layers
        self._graphs = DecodeGraphs(self.model, cache, self.adapters)

    @torch.inference_mode()
    def forward(self, step: StepInput) -> None:
        """Compute a step; its hidden states stay until the next one, for `logits`."""
        assert self._graphs is not None
        hidden = self._graphs.forward(step)
        if hidden is None:
            batch = self._batches.build(step)
            hidden = self.model.forward(batch, self._layers, self.adapters.layers)
        self._hidden = hidden

    @torch.inference_mode()
    def logits(self, rows: Sequence[int], adapters: Sequence[int]) -> Tensor:
        """Return the fp32 logits [n, V] after these tokens of the last step.

        Args:
            rows: indices into the step's tokens.
            adapters: the adapter slot of each.
        """
        assert self._hidden is not None
        hidden = self._hidden[torch.tensor(rows, device=self._hidden.device)]
        tokens = TokenAdapters.from_ids(adapters, hidden.device)
        return self.model.logits(hidden, self.adapters.head, tokens)

    def load(self, slot: int, factors: Mapping[Site, SiteFactors]) -> None:
        """Copy an adapter's factors to the device and put them into a slot.

        Raises:
            InklingError: they do not fit the model; the slot is as it was.
        """
        self.adapters.load(slot, factors)

    def clear(self, slot: int) -> None:
        """Empty an adapter slot."""
        self.adapters.clear(slot)

    def close(self) -> None:
        """Do nothing: one process ends by itself."""
