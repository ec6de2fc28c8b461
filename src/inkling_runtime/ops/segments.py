"""How the flat tokens of a batch fall into sequences.

Not a batch: only boundaries. They exist twice, on the host and on the device, because reading a
device tensor back would stop the device once per op.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Segments:
    """Boundaries of B sequences over T flat tokens; every sequence has at least one token."""

    bounds: tuple[int, ...]
    """B+1 ascending offsets on the host, from 0 to T."""
    cu_seqlens: Tensor
    """The same offsets on the device, int32 [B+1]."""

    @classmethod
    def from_lengths(cls, lengths: Sequence[int], device: torch.device) -> "Segments":
        """Return the segments of sequences of these lengths, one after the other."""
        bounds = [0]
        for length in lengths:
            bounds.append(bounds[-1] + length)
        return cls(tuple(bounds), torch.tensor(bounds, dtype=torch.int32, device=device))

    @property
    def num_sequences(self) -> int:
        """B."""
        return len(self.bounds) - 1

    @property
    def num_tokens(self) -> int:
        """T."""
        return self.bounds[-1]

    @property
    def is_decode(self) -> bool:
        """Whether every sequence has exactly one token."""
        return self.num_tokens == self.num_sequences

    def slices(self) -> list[slice]:
        """Return the rows of each sequence."""
        return [slice(a, b) for a, b in zip(self.bounds, self.bounds[1:], strict=False)]

    @cached_property
    def _lengths(self) -> Tensor:
        return (self.cu_seqlens[1:] - self.cu_seqlens[:-1]).long()

    @cached_property
    def sequence_of_token(self) -> Tensor:
        """Index of each token's sequence, int64 [T]."""
        sequences = torch.arange(self.num_sequences, device=self.cu_seqlens.device)
        return torch.repeat_interleave(sequences, self._lengths, output_size=self.num_tokens)
