"""A decode batch whose tensors stay where they are: what a captured graph reads.

Steps of fewer sequences are padded. A padding sequence has one token without an adapter and
writes to the cache's scratch places, which belong to nobody, so that nothing of it is seen.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inkling_runtime.cache.cache_tensors import ZERO_SLOT, Scratch
from inkling_runtime.engine.step_input import Ints, KeyPlaces, StepInput
from inkling_runtime.model.batch import Batch
from inkling_runtime.ops.conv_plan import ConvPlan
from inkling_runtime.ops.key_layout import KeyLayout
from inkling_runtime.ops.segments import Segments
from inkling_runtime.ops.token_adapters import NO_ADAPTER, TokenAdapters


def pad_step(step: StepInput, size: int, scratch: Scratch, block_size: int) -> StepInput:
    """Return a decode step with padding sequences behind its own, and padding states if it has any.

    Args:
        step: of at most `size` sequences with one token each.
        size: sequences of the result.
        scratch: where the padding sequences write.
        block_size: rows per block.
    """
    missing = size - len(step.lengths)
    points = step.conv_points
    if points:
        points += ((scratch.conv_slot, 0, 1),) * (size - len(points))
    return StepInput(
        token_ids=step.token_ids + (0,) * missing,
        lengths=step.lengths + (1,) * missing,
        adapters=step.adapters + (NO_ADAPTER,) * missing,
        conv_reads=step.conv_reads + (ZERO_SLOT,) * missing,
        conv_writes=step.conv_writes + (scratch.conv_slot,) * missing,
        conv_points=points,
        global_keys=_pad_keys(step.global_keys, missing, scratch.global_block, block_size),
        sliding_keys=_pad_keys(step.sliding_keys, missing, scratch.sliding_block, block_size),
    )


def _pad_keys(places: KeyPlaces, missing: int, block: int, block_size: int) -> KeyPlaces:
    return replace(
        places,
        blocks=places.blocks + ((block,),) * missing,
        starts=places.starts + (0,) * missing,
        lengths=places.lengths + (1,) * missing,
        slot_mapping=places.slot_mapping + (block * block_size,) * missing,
    )


class StaticBatch:
    """The tensors of a padded decode step, and one buffer per dtype that they all lie in.

    Args:
        size: sequences.
        widths: blocks per sequence in the tables of global and of sliding layers.
        has_points: whether states within the step are kept, one per sequence at most.
        has_adapters: whether the batch is one with adapters.
        device: where.
    """

    def __init__(
        self,
        size: int,
        widths: tuple[int, int],
        has_points: bool,
        has_adapters: bool,
        device: torch.device,
    ) -> None:
        writes = size * (2 if has_points else 1)
        self._shapes = [(size,), (size,), (size,), (writes,), (writes,), (size,), (size,)]
        self._tables = [(size, width) for width in widths]
        total = sum(np.prod(shape, dtype=int) for shape in self._shapes + self._tables)
        self._host = _host_buffer(int(total), torch.int64, device)
        self._host32 = _host_buffer(4 * size, torch.int32, device)
        self._device = torch.zeros_like(self._host, device=device)
        self._device32 = torch.zeros_like(self._host32, device=device)
        self._rows: list[list[Ints]] = [[()] * size for _ in widths]
        self.batch = self._make(size, has_adapters)

    def fill(self, step: StepInput) -> None:
        """Copy a padded step into the tensors."""
        points = zip(*step.conv_points, strict=True) if step.conv_points else ((), (), ())
        slots, sequences, ends = points
        values = (
            *step.token_ids,
            *step.adapters,
            *step.conv_reads,
            *step.conv_writes,
            *slots,
            *range(len(step.lengths)),
            *sequences,
            *step.global_keys.slot_mapping,
            *step.sliding_keys.slot_mapping,
        )
        assert set(ends) <= {1}, "a decode step has one token per sequence"
        numbers = self._host.numpy()
        numbers[: len(values)] = values
        at = len(values)
        keys = (step.global_keys, step.sliding_keys)
        for places, rows, shape in zip(keys, self._rows, self._tables, strict=True):
            stop = at + shape[0] * shape[1]
            _fill_table(numbers[at:stop].reshape(shape), rows, places.blocks)
            at = stop
        lengths = [number for places in keys for number in (*places.starts, *places.lengths)]
        self._host32.numpy()[:] = lengths
        self._device.copy_(self._host)
        self._device32.copy_(self._host32)

    def _make(self, size: int, has_adapters: bool) -> Batch:
        parts = list(_split(self._device, self._shapes + self._tables))
        token_ids, ids, reads, write_slots, write_sequences, *slot_mappings = parts[:7]
        numbers = self._device32.view(4, size)
        segments = Segments.from_lengths((1,) * size, self._device.device)
        layouts = [
            KeyLayout(
                slot_mapping=mapping,
                block_table=table,
                first_blocks=(None,) * size,
                starts=(0,) * size,
                lengths=(table.shape[1],) * size,
                starts_device=numbers[2 * index],
                lengths_device=numbers[2 * index + 1],
            )
            for index, (mapping, table) in enumerate(zip(slot_mappings, parts[7:], strict=True))
        ]
        return Batch(
            token_ids=token_ids,
            segments=segments,
            conv=ConvPlan(
                reads, write_slots, write_sequences, torch.ones_like(write_slots), segments
            ),
            global_keys=layouts[0],
            sliding_keys=layouts[1],
            # Kernels read the ids; that there is a group says that ids are worth reading.
            adapters=TokenAdapters(ids, ((0, slice(0, 0)),) if has_adapters else ()),
        )


def _host_buffer(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return memory that a GPU can copy from by itself."""
    return torch.zeros(length, dtype=dtype, pin_memory=device.type == "cuda")


def _split(buffer: Tensor, shapes: list[tuple[int, ...]]) -> list[Tensor]:
    sizes = [int(np.prod(shape, dtype=int)) for shape in shapes]
    return [part.view(shape) for part, shape in zip(buffer.split(sizes), shapes, strict=True)]


def _fill_table(table: NDArray[np.int64], known: list[Ints], blocks: tuple[Ints, ...]) -> None:
    """Write the rows that are others than last time; behind a row's end is block 0."""
    for index, row in enumerate(blocks):
        if row is not known[index]:
            table[index, : len(row)] = row
            table[index, len(row) :] = 0
            known[index] = row
