"""Decode steps as CUDA graphs: one launch from the host in place of some thousand.

A graph is captured once for a number of sequences (padded to a bucket), a width of the block
tables, and what of the adapters decides which kernels run: nothing, if no sequence has one, else
which sites have factors, how large and how laid out. Which factors a slot has is no part of it:
kernels find them through the slots' tables, so adapters are swapped without a new capture.

Not applicable to steps with a prompt. What a newcomer gets wrong: capturing runs nothing, but the
run before it that warms up does, and writes the cache; so it is a run of padding alone.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_runtime.adapter.sites import SiteKind
from inkling_runtime.cache.cache_tensors import CacheTensors
from inkling_runtime.engine.static_batch import StaticBatch, pad_step
from inkling_runtime.engine.step_input import KeyPlaces, StepInput
from inkling_runtime.lora.adapter_table import AdapterTable
from inkling_runtime.model.inkling import Inkling
from inkling_runtime.ops.lora_slots import LoraSlots
from inkling_runtime.ops.token_adapters import NO_ADAPTER

BUCKETS = (1, 2, 4, *range(8, 257, 8))
"""Numbers of sequences that graphs are made for."""
MAX_GRAPHS = 64
"""Kept; the one that was used least recently goes first."""
MIN_WIDTH = 8
"""Blocks that tables have at least; wider ones double."""

Replay = Callable[[], Tensor]
Record = Callable[[Callable[[], Tensor]], Replay]
Sites = Mapping[SiteKind, LoraSlots]


def bucket_of(num_sequences: int) -> int | None:
    """Return the smallest bucket that holds so many sequences; None: there is none."""
    return next((size for size in BUCKETS if size >= num_sequences), None)


def width_of(places: KeyPlaces) -> int:
    """Return the width of a block table that holds these rows."""
    longest = max((len(row) for row in places.blocks), default=0)
    return max(MIN_WIDTH, 1 << (longest - 1).bit_length() if longest else 0)


def lora_signature(layers: Sequence[Sites]) -> Hashable:
    """Return what of the adapted sites decides which kernels run, and where they read."""
    return tuple(
        tuple((kind, _slots_signature(slots)) for kind, slots in sites.items()) for sites in layers
    )


def _slots_signature(slots: LoraSlots) -> Hashable:
    return (
        id(slots),
        (slots.max_rank - 1).bit_length(),
        slots.is_aligned,
        slots.has_own_b,
    )


@dataclass(frozen=True, slots=True)
class _Graph:
    inputs: StaticBatch
    replay: Replay
    layers: Sequence[Sites]
    """Kept alive: the graph reads their tables, and their identity is part of its key."""


class DecodeGraphs:
    """The graphs of a model.

    Args:
        model: the base model.
        cache: its cache.
        adapters: its adapter slots.
        record: makes of a computation one that can be repeated.
    """

    def __init__(
        self,
        model: Inkling,
        cache: CacheTensors,
        adapters: AdapterTable,
        record: Record | None = None,
    ) -> None:
        self._model = model
        self._cache = cache
        self._adapters = adapters
        self._record = record or CudaRecorder()
        # Whether collectives of several ranks can be captured has never been tried.
        is_alone = model.ranks.others is None
        self._is_on = record is not None or (model.device.type == "cuda" and is_alone)
        self._graphs: OrderedDict[Hashable, _Graph] = OrderedDict()
        self._signature: tuple[int, Hashable] = (-1, None)

    def __len__(self) -> int:
        return len(self._graphs)

    def forward(self, step: StepInput) -> Tensor | None:
        """Return the hidden states of a step, valid until the next one; None: not applicable."""
        size = bucket_of(len(step.lengths))
        if not self._is_on or size is None or any(length != 1 for length in step.lengths):
            return None
        graph = self._graph_of(step, size)
        graph.inputs.fill(self._padded(step, size))
        return graph.replay()[: len(step.lengths)]

    def _padded(self, step: StepInput, size: int) -> StepInput:
        return pad_step(step, size, self._cache.scratch, self._cache.sizes.block_size)

    def _graph_of(self, step: StepInput, size: int) -> _Graph:
        has_adapters = any(slot != NO_ADAPTER for slot in step.adapters)
        widths = (width_of(step.global_keys), width_of(step.sliding_keys))
        key = (size, widths, bool(step.conv_points), self._lora_key() if has_adapters else None)
        if key not in self._graphs:
            while len(self._graphs) >= MAX_GRAPHS:
                self._graphs.popitem(last=False)
            inputs = StaticBatch(
                size, widths, bool(step.conv_points), has_adapters, self._model.device
            )
            layers = self._adapters.layers if has_adapters else [{}] * len(self._cache.layers)
            self._graphs[key] = self._capture(inputs, layers, step)
        self._graphs.move_to_end(key)
        return self._graphs[key]

    def _lora_key(self) -> Hashable:
        """Return the signature of the adapters, made again only where one came or went."""
        if self._signature[0] != self._adapters.version:
            self._signature = (self._adapters.version, lora_signature(self._adapters.layers))
        return self._signature[1]

    def _capture(self, inputs: StaticBatch, layers: Sequence[Sites], step: StepInput) -> _Graph:
        layers = [dict(sites) for sites in layers]
        points = step.conv_points and ((self._cache.scratch.conv_slot, 0, 1),)
        empty = StepInput((), (), (), (), (), points, _NO_PLACES, _NO_PLACES)
        inputs.fill(self._padded(empty, len(inputs.batch.token_ids)))
        replay = self._record(lambda: self._model.forward(inputs.batch, self._cache.layers, layers))
        return _Graph(inputs, replay, layers)


_NO_PLACES = KeyPlaces((), (), (), ())


class CudaRecorder:
    """Captures CUDA graphs that share their memory: only one of them runs at a time."""

    def __init__(self) -> None:
        self._pool: tuple[int, int] | None = None

    def __call__(self, compute: Callable[[], Tensor]) -> Replay:
        """Return what repeats a computation over the same memory."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            # Compiles kernels and lets libraries take their workspaces, which a capture may not.
            compute()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            hidden = compute()
        self._pool = self._pool or graph.pool()

        def replay() -> Tensor:
            graph.replay()
            return hidden

        return replay
