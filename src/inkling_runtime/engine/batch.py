"""From the plain numbers of a step to the tensors of a forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from inkling_runtime.engine.step_input import Ints, KeyPlaces, StepInput
from inkling_runtime.model.batch import Batch
from inkling_runtime.ops.conv_plan import ConvPlan
from inkling_runtime.ops.key_layout import KeyLayout
from inkling_runtime.ops.segments import Segments
from inkling_runtime.ops.token_adapters import TokenAdapters

_ALIGNMENT = 16


@dataclass(slots=True)
class _Table:
    """The tensor of the block tables of the last step, which most steps can use again."""

    blocks: tuple[Ints, ...] = ()
    tensor: Tensor = field(default_factory=lambda: torch.empty(0))
    first_blocks: tuple[int | None, ...] = ()


class BatchBuilder:
    """Makes the batches of steps on a device.

    Block tables change once in many steps, and long ones are what a step has most of: they are
    made again only where they changed. Tuples that are the same object compare at once.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._global, self._sliding = _Table(), _Table()

    def build(self, step: StepInput) -> Batch:
        """Return the batch of a step."""
        count = len(step.lengths)
        points = zip(*step.conv_points, strict=True) if step.conv_points else ((), (), ())
        slots, sequences, ends = points
        bounds = (0, *accumulate(step.lengths))
        adapters = [
            adapter
            for adapter, length in zip(step.adapters, step.lengths, strict=True)
            for _ in range(length)
        ]
        keys = (step.global_keys, step.sliding_keys)
        token_ids, adapter_ids, reads, write_slots, write_sequences, write_ends, *mappings = _pack(
            [
                step.token_ids,
                adapters,
                step.conv_reads,
                (*step.conv_writes, *slots),
                (*range(count), *sequences),
                (*step.lengths, *ends),
                *(places.slot_mapping for places in keys),
            ],
            torch.int64,
            self._device,
        )
        cu_seqlens, *places = _pack(
            [bounds, *(numbers for each in keys for numbers in (each.starts, each.lengths))],
            torch.int32,
            self._device,
        )
        segments = Segments(bounds, cu_seqlens)
        return Batch(
            token_ids=token_ids,
            segments=segments,
            conv=ConvPlan(reads, write_slots, write_sequences, write_ends, segments),
            global_keys=self._key_layout(step.global_keys, self._global, mappings[0], places[:2]),
            sliding_keys=self._key_layout(
                step.sliding_keys, self._sliding, mappings[1], places[2:]
            ),
            adapters=TokenAdapters.from_ids(adapters, self._device, adapter_ids),
        )

    def _key_layout(
        self, places: KeyPlaces, table: _Table, slot_mapping: Tensor, numbers: list[Tensor]
    ) -> KeyLayout:
        if places.blocks != table.blocks:
            self._fill(table, places.blocks)
        return KeyLayout(
            slot_mapping=slot_mapping,
            block_table=table.tensor,
            first_blocks=table.first_blocks,
            starts=places.starts,
            lengths=places.lengths,
            starts_device=numbers[0],
            lengths_device=numbers[1],
        )

    def _fill(self, table: _Table, blocks: tuple[Ints, ...]) -> None:
        longest = max(len(row) for row in blocks)
        rows = [(*row, *[0] * (longest - len(row))) for row in blocks]
        table.tensor = torch.tensor(rows, dtype=torch.int64, device=self._device)
        table.first_blocks = tuple(_first_of_run(row) for row in blocks)
        table.blocks = blocks


def _pack(rows: Sequence[Sequence[int]], dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Return a tensor of each row; they lie in one, which goes to the device in one copy.

    Each begins at a multiple of 16 bytes, as kernels are compiled for.
    """
    unit = _ALIGNMENT // dtype.itemsize
    flat: list[int] = []
    sizes: list[int] = []
    for row in rows:
        padding = -len(row) % unit
        flat += row
        flat += [0] * padding
        sizes += (len(row), padding)
    return list(torch.tensor(flat, dtype=dtype, device=device).split(sizes))[::2]


def _first_of_run(blocks: Ints) -> int | None:
    """Return the first block if each follows the one before, else None."""
    first = blocks[0]
    return first if blocks == tuple(range(first, first + len(blocks))) else None
