"""The factors of one site on a device, and the two products that every LoRA op is made of.

Factored always: B·A is never formed. Products are fp32 whatever the factors' dtype.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class LoraPair:
    """Both factors of one site of one adapter: ΔW = scaling · B @ A.

    Without experts `a` is [R, in] and `b` is [out, R]; with experts each has a leading dimension
    that is 1 where the factor is shared by all experts.
    """

    a: Tensor
    b: Tensor
    scaling: float

    @property
    def rank(self) -> int:
        """R."""
        return self.a.shape[-2]

    def expert_a(self, expert: int) -> Tensor:
        """Return A of one expert, [R, in]; without experts the only one."""
        return _of_expert(self.a, expert)

    def expert_b(self, expert: int) -> Tensor:
        """Return B of one expert, [out, R]; without experts the only one."""
        return _of_expert(self.b, expert)


def _of_expert(factor: Tensor, expert: int) -> Tensor:
    if factor.dim() == 2:
        return factor
    return factor[expert if len(factor) > 1 else 0]


def shrink(x: Tensor, a: Tensor) -> Tensor:
    """Return the first LoRA product A · x, fp32 [T, R]."""
    return functional.linear(x.float(), a.float())


def expand(z: Tensor, b: Tensor, scaling: float) -> Tensor:
    """Return the second LoRA product scaling · B · z, fp32 [T, out]."""
    return functional.linear(z, b.float()).mul_(scaling)


def add_rows(y: Tensor, rows: slice | Tensor, delta: Tensor) -> None:
    """Add a delta to rows of y, in place; the sum is fp32, y keeps its dtype."""
    if isinstance(rows, slice):
        y[rows].add_(delta)
    else:
        y.index_copy_(0, rows, (y[rows] + delta).to(y.dtype))


def delta_reference(pair: LoraPair | None, x: Tensor, expert: int = 0) -> Tensor | float:
    """Specify the delta of one token x [in]: scaling · B · (A · x), 0 without a pair."""
    if pair is None:
        return 0.0
    a, b = pair.expert_a(expert).float(), pair.expert_b(expert).float()
    return torch.mul(b @ (a @ x.float()), pair.scaling)
