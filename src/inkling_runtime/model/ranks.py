"""A model's place among the ranks that hold it together: its part, and the sums over all parts.

The model only adds and joins; who the others are, and over what it goes, is not its business. One
rank alone does neither: it runs the very ops of a model that was never cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from inkling_runtime.model.shard import WHOLE, Shard
from inkling_runtime.ops.lora_expand import expand_pending
from inkling_runtime.ops.pending_delta import PendingDelta


class Communicator(Protocol):
    """The other ranks."""

    def all_reduce(self, x: Tensor) -> Tensor:
        """Return the sum of x over all ranks; x may be overwritten."""

    def join_columns(self, x: Tensor) -> Tensor:
        """Return the columns of all ranks [T, Σ C] side by side, in the order of the ranks.

        Args:
            x: [T, C], with a C of each rank's own that never changes.
        """


@dataclass(frozen=True, slots=True)
class Ranks:
    """What one rank holds, and how it reaches the others; without them it is all there is."""

    shard: Shard = WHOLE
    others: Communicator | None = None

    def all_reduce(self, x: Tensor) -> Tensor:
        """Return the sum of x over all ranks; x may be overwritten."""
        return x if self.others is None else self.others.all_reduce(x)

    def join_columns(self, x: Tensor) -> Tensor:
        """Return the columns of all ranks side by side."""
        return x if self.others is None else self.others.join_columns(x)

    def reduce(
        self, y: Tensor, pending: Sequence[PendingDelta]
    ) -> tuple[Tensor, Sequence[PendingDelta]]:
        """Return the sum of y and its pending deltas over all ranks; alone they stay pending."""
        if self.others is None:
            return y, pending
        for delta in pending:
            y = expand_pending(y, delta)
        return self.others.all_reduce(y), ()


ALONE = Ranks()
"""One rank."""
