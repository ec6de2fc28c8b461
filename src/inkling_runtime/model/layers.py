"""Small parts that several layers use: norm, linear maps with their sites, the dense MLP."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from inkling_runtime.adapter.sites import SiteKind
from inkling_runtime.model.batch import LoraSites
from inkling_runtime.ops.lora_linear import lora_linear, lora_linear_deferred
from inkling_runtime.ops.lora_shrink import Shrunk
from inkling_runtime.ops.lora_slots import LoraPart, LoraParts, LoraSlots
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.rms_norm import rms_norm
from inkling_runtime.ops.silu_and_mul import silu_and_mul_deferred
from inkling_runtime.ops.token_adapters import TokenAdapters


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """A norm over the last dimension."""

    weight: Tensor
    eps: float

    def forward(self, x: Tensor) -> Tensor:
        """Return x normed."""
        return rms_norm(x, self.weight, self.eps)


class LoraLinear:
    """A weight that holds one or several sites side by side.

    Args:
        weight: [out, in].
        sites: the output features of each site, in order; together all of them.
    """

    def __init__(self, weight: Tensor, sites: Mapping[SiteKind, int]) -> None:
        self.weight = weight
        self.widths = list(sites.values())
        self._bounds: list[tuple[SiteKind, int, int]] = []
        start = 0
        for kind, width in sites.items():
            self._bounds.append((kind, start, start + width))
            start += width
        self._slots: list[LoraSlots | None] = []
        self._adapted = LoraParts()

    def forward(self, x: Tensor, lora: LoraSites, adapters: TokenAdapters) -> Tensor:
        """Return [T, out] with the deltas of the sites that are adapted."""
        return lora_linear(x, self.weight, self._parts(lora, adapters), adapters)

    def forward_deferred(
        self,
        x: Tensor,
        lora: LoraSites,
        adapters: TokenAdapters,
        shrunk: Shrunk | None = None,
    ) -> tuple[Tensor, PendingDelta | None]:
        """Return [T, out] and the deltas that its reader has still to add, if any.

        `shrunk` is A · x of the adapted sites where it is known already.
        """
        return lora_linear_deferred(x, self.weight, self._parts(lora, adapters), adapters, shrunk)

    def _parts(self, lora: LoraSites, adapters: TokenAdapters) -> LoraParts:
        """Return the adapted sites, the same object while they are the same."""
        if not adapters.groups:
            return LoraParts()
        slots = [lora.get(kind) for kind, _, _ in self._bounds]
        if slots != self._slots:
            self._slots = slots
            self._adapted = LoraParts(
                LoraPart(start, stop, site)
                for (_, start, stop), site in zip(self._bounds, slots, strict=True)
                if site is not None
            )
        return self._adapted


class DenseMLP:
    """The MLP of the first layers: down(silu(gate(x)) · up(x)) · global_scale."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        hidden_size, width = weights["w2"].shape
        self.gate_up = LoraLinear(
            weights["w13"], {SiteKind.DENSE_GATE: width, SiteKind.DENSE_UP: width}
        )
        self.down = LoraLinear(weights["w2"], {SiteKind.DENSE_DOWN: hidden_size})
        self.global_scale = weights["global_scale"].item()

    def forward(
        self, x: Tensor, lora: LoraSites, adapters: TokenAdapters
    ) -> tuple[Tensor, tuple[PendingDelta, ...]]:
        """Return [T, H] and its pending deltas.

        The scale multiplies the activation, so that a delta of the down projection is scaled, too.
        """
        gate_up, pending = self.gate_up.forward_deferred(x, lora, adapters)
        down = lora.get(SiteKind.DENSE_DOWN) if adapters.groups else None
        hidden, shrunk = silu_and_mul_deferred(gate_up, self.global_scale, pending, down, adapters)
        y, pending = self.down.forward_deferred(hidden, lora, adapters, shrunk)
        return y, () if pending is None else (pending,)
