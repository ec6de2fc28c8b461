"""Where the short convolutions of a step find their states, and which states they leave behind.

The same for every convolution of every layer. Besides the state after a sequence's last token a
step may keep states at points within a chunk, so that a later sequence with the same beginning
can go on from there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from inkling_runtime.ops.segments import Segments


@dataclass(frozen=True)
class ConvPlan:
    """State slots of B sequences, and the W states to be written."""

    read_slots: Tensor
    """int64 [B]: the state before each sequence's first token of this step."""
    write_slots: Tensor
    """int64 [W], distinct: first those of the B sequences' ends, then those of earlier points.

    A slot that is read is written, if at all, as the end of the one sequence that reads it.
    """
    write_sequences: Tensor
    """int64 [W]: the sequence of each written state."""
    write_ends: Tensor
    """int64 [W]: the state is the one after so many of the sequence's tokens of this step."""
    segments: Segments

    @classmethod
    def make(
        cls,
        segments: Segments,
        read_slots: Sequence[int],
        write_slots: Sequence[int],
        points: Sequence[tuple[int, int, int]] = (),
        device: torch.device | None = None,
    ) -> "ConvPlan":
        """Return the plan of a step.

        Args:
            segments: the tokens of the step.
            read_slots: one per sequence.
            write_slots: one per sequence, its state after its last token.
            points: further states as (slot, sequence, end).
            device: where the tensors go; None: where those of the segments are.
        """
        device = device or segments.cu_seqlens.device
        lengths = [b - a for a, b in zip(segments.bounds, segments.bounds[1:], strict=False)]
        rows = [*zip(write_slots, range(len(lengths)), lengths, strict=True), *points]

        def tensor(values: Sequence[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int64, device=device)

        slots, sequences, ends = zip(*rows, strict=True)
        return cls(tensor(read_slots), tensor(slots), tensor(sequences), tensor(ends), segments)

    @cached_property
    def addresses(self) -> tuple[int, ...]:
        """What a compiled kernel gets: where the bounds and the plan are in memory, B and W."""
        tensors = (
            self.segments.cu_seqlens,
            self.read_slots,
            self.write_slots,
            self.write_sequences,
            self.write_ends,
        )
        addresses = [tensor.data_ptr() for tensor in tensors]
        return (*addresses, len(self.read_slots), len(self.write_slots))

    @cached_property
    def _rows(self) -> dict[int, tuple[Tensor, Tensor]]:
        return {}

    def rows(self, num_taps: int) -> tuple[Tensor, Tensor]:
        """Return where a causal window of `num_taps` tokens finds its inputs.

        Rows count into the B·(num_taps-1) rows of history, sequence after sequence, followed by
        the T tokens themselves. The first tensor [num_taps, T] holds the row of each tap of each
        token, the second [W, num_taps-1] the rows of each written state.
        """
        if num_taps not in self._rows:
            self._rows[num_taps] = self._find_rows(num_taps)
        return self._rows[num_taps]

    def _find_rows(self, num_taps: int) -> tuple[Tensor, Tensor]:
        segments, back = self.segments, num_taps - 1
        device = self.read_slots.device
        history = segments.num_sequences * back
        starts = segments.cu_seqlens[:-1].long()

        def row_of(sequence: Tensor, index: Tensor) -> Tensor:
            """Return the row of token `index` of a sequence; negative ones are history."""
            old, new = sequence * back + back + index, history + starts[sequence] + index
            return torch.where(index < 0, old, new)

        sequence = segments.sequence_of_token
        index = torch.arange(segments.num_tokens, device=device) - starts[sequence]
        taps = row_of(sequence, index + torch.arange(-back, 1, device=device)[:, None])
        tails = self.write_ends[:, None] + torch.arange(-back, 0, device=device)
        return taps, row_of(self.write_sequences[:, None], tails)
