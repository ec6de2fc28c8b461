"""What one step computes, in plain numbers: decided on the host, sent to whoever computes.

No tensors, so that it can be pickled for other ranks. `batch.py` makes tensors of it.
"""

from dataclasses import dataclass

Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """Where B sequences have their keys and values in layers of one kind."""

    blocks: tuple[Ints, ...]
    """The blocks of each sequence in the order of positions."""
    starts: Ints
    """The position of the first row of each sequence's first block."""
    lengths: Ints
    """Tokens of each sequence after this step, dropped ones included."""
    slot_mapping: Ints
    """The row block · block_size + offset that each token of the step writes."""


@dataclass(frozen=True, slots=True)
class StepInput:
    """T tokens of B sequences, those of a sequence next to each other."""

    token_ids: Ints
    lengths: Ints
    """Tokens of each sequence in this step."""
    adapters: Ints
    """Adapter slot of each sequence, -1: none."""
    conv_reads: Ints
    """Convolution slot that each sequence starts from."""
    conv_writes: Ints
    """Convolution slot of each sequence after the step."""
    conv_points: tuple[tuple[int, int, int], ...]
    """Further states to keep: (slot, sequence, after so many of its tokens of this step)."""
    global_keys: KeyPlaces
    sliding_keys: KeyPlaces
