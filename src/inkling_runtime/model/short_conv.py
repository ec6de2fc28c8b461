"""The short convolution of a place in a layer: a weight that knows how to read a batch."""

from dataclasses import dataclass

from torch import Tensor

from inkling_runtime.model.batch import Batch
from inkling_runtime.ops.short_conv import short_conv


@dataclass(frozen=True, slots=True)
class ShortConv:
    """Depthwise causal convolution with its own residual; the weight is [W, C], fp32."""

    weight: Tensor

    def forward(self, x: Tensor, state: Tensor, batch: Batch) -> Tensor:
        """Return [T, C] and move the sequences' states forward, in place."""
        return short_conv(x, self.weight, state, batch.conv_slots, batch.segments)
