"""The memory of one adapter slot on one rank, by kind of module.

Only the words; the sizes are each engine's own (`vllm.py`, `sglang.py`). Elements, not bytes:
both engines keep slots in bf16.
"""

from dataclasses import dataclass
from enum import StrEnum

BYTES_PER_ELEMENT = 2


class ModuleKind(StrEnum):
    """Kinds of modules that an adapter slot has factors for, as the table names them."""

    QKVR = "attention q, k, v, r"
    WO = "attention out"
    DENSE_GATE_UP = "dense gate, up"
    DENSE_DOWN = "dense down"
    ROUTED_GATE_UP = "routed experts w1, w3"
    ROUTED_DOWN = "routed experts w2"
    SHARED_GATE_UP = "shared experts w1, w3"
    SHARED_DOWN = "shared experts w2"
    EMBEDDING = "embedding"
    HEAD = "head"


@dataclass(frozen=True, slots=True)
class SlotPart:
    """The factors of one kind of module in one slot of one rank, all layers together.

    Attributes:
        kind: of module.
        a: elements of the A factors.
        b: elements of the B factors.
        idle: of these, elements in layers that have no such module.
        derived: elements beside the pool that the engine computes from the factors.
    """

    kind: ModuleKind
    a: int
    b: int
    idle: int = 0
    derived: int = 0

    @property
    def pooled_bytes(self) -> int:
        """Bytes of both factors."""
        return BYTES_PER_ELEMENT * (self.a + self.b)

    @property
    def total_bytes(self) -> int:
        """Bytes of both factors and of what is derived from them."""
        return self.pooled_bytes + BYTES_PER_ELEMENT * self.derived


class SlotTally:
    """Adds up parts by kind."""

    def __init__(self) -> None:
        self._parts: dict[ModuleKind, SlotPart] = {}

    def add(
        self, kind: ModuleKind, a: int, b: int, *, is_used: bool = True, derived: int = 0
    ) -> None:
        """Count the factors of one module."""
        old = self._parts.get(kind, SlotPart(kind, 0, 0))
        idle = 0 if is_used else a + b
        self._parts[kind] = SlotPart(
            kind, old.a + a, old.b + b, old.idle + idle, old.derived + derived
        )

    def parts(self) -> tuple[SlotPart, ...]:
        """Return the parts that take memory, in the order of `ModuleKind`."""
        return tuple(self._parts[kind] for kind in ModuleKind if kind in self._parts)
