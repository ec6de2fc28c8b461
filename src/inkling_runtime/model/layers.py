"""Small parts that several layers use: norm, linear maps with their sites, the dense MLP."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from inkling_runtime.adapter.sites import SiteKind
from inkling_runtime.model.batch import LoraSites
from inkling_runtime.ops.lora_linear import LoraPart, lora_linear
from inkling_runtime.ops.rms_norm import add_rms_norm, rms_norm
from inkling_runtime.ops.silu_and_mul import silu_and_mul
from inkling_runtime.ops.token_adapters import TokenAdapters


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """A norm over the last dimension."""

    weight: Tensor
    eps: float

    def forward(self, x: Tensor) -> Tensor:
        """Return x normed."""
        return rms_norm(x, self.weight, self.eps)

    def forward_add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return x + residual normed, and the sum."""
        return add_rms_norm(x, residual, self.weight, self.eps)


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

    def forward(self, x: Tensor, lora: LoraSites, adapters: TokenAdapters) -> Tensor:
        """Return [T, out] with the deltas of the sites that are adapted."""
        parts = []
        if adapters.groups:
            parts = [
                LoraPart(start, stop, lora[kind])
                for kind, start, stop in self._bounds
                if kind in lora
            ]
        return lora_linear(x, self.weight, parts, adapters)


class DenseMLP:
    """The MLP of the first layers: down(silu(gate(x)) · up(x)) · global_scale."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        hidden_size, width = weights["w2"].shape
        self.gate_up = LoraLinear(
            weights["w13"], {SiteKind.DENSE_GATE: width, SiteKind.DENSE_UP: width}
        )
        self.down = LoraLinear(weights["w2"], {SiteKind.DENSE_DOWN: hidden_size})
        self.global_scale = weights["global_scale"]

    def forward(self, x: Tensor, lora: LoraSites, adapters: TokenAdapters) -> Tensor:
        """Return [T, H]."""
        hidden = silu_and_mul(self.gate_up.forward(x, lora, adapters))
        return self.down.forward(hidden, lora, adapters) * self.global_scale
