"""What kernels know of the slots of sites before they read a table (`ops.lora_slots`).

No kernels: the width of the table as a constant, and the constants that depend on the adapters.
"""

from collections.abc import Iterable

import triton
import triton.language as tl

from inkling_runtime.ops import lora_slots
from inkling_runtime.ops.lora_slots import LoraSlots

MIN_RANK = 16
TABLE_COLUMNS = tl.constexpr(lora_slots.TABLE_COLUMNS)
"""Of `LoraSlots.table`, which see for what they are."""


def rank_block(sites: Iterable[LoraSlots | None]) -> int:
    """Return how many columns kernels give to the factors of some sites, 0 if there are none.

    A power of two, at least `MIN_RANK`, that holds every rank.
    """
    ranks = [slots.max_rank for slots in sites if slots]
    return max(MIN_RANK, triton.next_power_of_2(max(ranks))) if ranks else 0


def are_aligned(sites: Iterable[LoraSlots | None]) -> bool:
    """Return whether kernels can load 16 bytes of any row of these sites' factors at once."""
    return all(slots.is_aligned for slots in sites if slots)
