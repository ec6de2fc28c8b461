"""Which adapter each token of a batch uses.

Not the adapters: only their ids (adapter slots), -1 for none. The groups are on the host, so
that an op knows what there is to do without reading the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

NO_ADAPTER = -1


@dataclass(frozen=True, slots=True)
class TokenAdapters:
    """Adapter ids per token, and the tokens of each adapter that occurs."""

    ids: Tensor
    """int64 [T] on the device, -1 = none."""
    groups: tuple[tuple[int, slice | Tensor], ...]
    """(adapter id, rows of its tokens) in ascending order of ids, without -1."""

    @classmethod
    def from_ids(
        cls, ids: Sequence[int], device: torch.device, tensor: Tensor | None = None
    ) -> "TokenAdapters":
        """Return the groups of adapter ids given per token; `tensor` is the ids if it exists."""
        rows: dict[int, list[int]] = {}
        for row, adapter in enumerate(ids):
            if adapter != NO_ADAPTER:
                rows.setdefault(adapter, []).append(row)
        groups = tuple((adapter, _as_index(rows[adapter], device)) for adapter in sorted(rows))
        if tensor is None:
            tensor = torch.tensor(ids, dtype=torch.int64, device=device)
        return cls(tensor, groups)


def _as_index(rows: list[int], device: torch.device) -> slice | Tensor:
    """Return neighbouring rows as a slice, which costs no copy."""
    if rows[-1] - rows[0] == len(rows) - 1:
        return slice(rows[0], rows[-1] + 1)
    return torch.tensor(rows, dtype=torch.int64, device=device)
