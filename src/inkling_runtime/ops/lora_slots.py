"""The factors of one site by adapter slot: on the host, and as a table that kernels read.

The table holds addresses, so adapters of any rank and any expert layout lie where they were
loaded, and a captured CUDA graph stays valid when a slot gets another adapter: only the rows of
the table change, in place.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from inkling_runtime.ops.lora_pair import LoraPair

TABLE_COLUMNS = 5
"""Address of A, address of B, rank, elements per expert of A and of B (0: shared or no experts)."""


class LoraSlots:
    """The pairs of one site; a slot without the site has rank 0.

    Args:
        pairs: one per slot; their number is fixed.
        device: where the table is.
    """

    def __init__(self, pairs: Sequence[LoraPair | None], device: torch.device) -> None:
        self._pairs: list[LoraPair | None] = [None] * len(pairs)
        self.table = torch.zeros(len(pairs), TABLE_COLUMNS, dtype=torch.int64, device=device)
        self.scalings = torch.zeros(len(pairs), dtype=torch.float32, device=device)
        self.addresses = (self.table.data_ptr(), self.scalings.data_ptr())
        self.dtype: torch.dtype | None = None
        for slot, pair in enumerate(pairs):
            if pair is not None:
                self.put(slot, pair)

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, slot: int) -> LoraPair | None:
        return self._pairs[slot]

    def __bool__(self) -> bool:
        return bool(self._present)

    def put(self, slot: int, pair: LoraPair) -> None:
        """Let a slot have these factors: contiguous, of one dtype, on the table's device."""
        if not (pair.a.is_contiguous() and pair.b.is_contiguous()):
            raise ValueError("the factors of a slot must be contiguous")
        if {pair.a.dtype, pair.b.dtype, self.dtype or pair.a.dtype} != {pair.a.dtype}:
            raise ValueError("the factors of a site must have one dtype")
        self.dtype = pair.a.dtype
        self._pairs[slot] = pair
        row = (
            pair.a.data_ptr(),
            pair.b.data_ptr(),
            pair.rank,
            _expert_stride(pair.a),
            _expert_stride(pair.b),
        )
        self.table[slot] = torch.tensor(row, dtype=torch.int64)
        self.scalings[slot] = pair.scaling

    def clear(self, slot: int) -> None:
        """Empty a slot."""
        self._pairs[slot] = None
        self.table[slot] = 0
        self.scalings[slot] = 0

    @property
    def max_rank(self) -> int:
        """The largest rank of all slots."""
        return max((pair.rank for pair in self._present), default=0)

    @property
    def has_own_b(self) -> bool:
        """Whether an adapter has a B for each expert."""
        return any(pair.b.dim() == 3 and len(pair.b) > 1 for pair in self._present)

    @property
    def is_aligned(self) -> bool:
        """Whether 16 bytes of any factor's row can be loaded at once."""
        return all(
            pair.rank % 8 == 0 and (pair.a.data_ptr() | pair.b.data_ptr()) % 16 == 0
            for pair in self._present
        )

    @property
    def _present(self) -> list[LoraPair]:
        return [pair for pair in self._pairs if pair is not None]


@dataclass(frozen=True, slots=True)
class LoraPart:
    """The site that owns the output features `start` to `stop` of a weight."""

    start: int
    stop: int
    slots: LoraSlots
    expert: int = 0
    """Which B, where an adapter has one per expert."""


class LoraParts(tuple[LoraPart, ...]):
    """Parts that are used again and again: what a kernel is told of them is put together once."""

    @cached_property
    def numbers(self) -> "array[int]":
        """Start, stop and both addresses of each part, int64."""
        rows = ((part.start, part.stop, *part.slots.addresses) for part in self)
        return array("q", (number for row in rows for number in row))


@dataclass(frozen=True)
class GatedLora:
    """The slots of the three sites of a gated MLP; None: no adapter has the site."""

    gate: LoraSlots | None
    up: LoraSlots | None
    down: LoraSlots | None

    @cached_property
    def numbers(self) -> "array[int]":
        """Both addresses of each site, int64, 0 where it is None."""
        rows = (
            (0, 0) if slots is None else slots.addresses
            for slots in (self.gate, self.up, self.down)
        )
        return array("q", (number for row in rows for number in row))


def pair_of(slots: LoraSlots | None, slot: int) -> LoraPair | None:
    """Return the pair of a slot, None where the site, the slot or its adapter is none."""
    return None if slots is None or slot < 0 else slots[slot]


def _expert_stride(factor: Tensor) -> int:
    return factor.stride(0) if factor.dim() == 3 and len(factor) > 1 else 0
