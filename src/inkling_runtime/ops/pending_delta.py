"""A LoRA delta that is shrunk but not yet expanded.

On a GPU every launch costs more than a LoRA product. So A · x is one launch, and B · (A · x) is
added by the op that reads the output of the linear map anyway. On a CPU nothing is deferred.
"""

from dataclasses import dataclass

from torch import Tensor

from inkling_runtime.ops.lora_slots import LoraPart
from inkling_runtime.ops.token_adapters import TokenAdapters


@dataclass(frozen=True, slots=True)
class PendingDelta:
    """What has still to be added to y [T, out].

    Semantics::

        y[t, start:stop] += scaling · B · (Σ_p shrunk[p, t, column : column + rank])

    for every part with its column, with B and scaling of slots[ids[t]]. The partial sums are
    added in the order of p. B is that of the part's expert, where there is one per expert.
    """

    shrunk: Tensor
    """fp32 [P, T, W]."""
    parts: tuple[LoraPart, ...]
    columns: tuple[int, ...]
    """The first column of each part in `shrunk`."""
    adapters: TokenAdapters
