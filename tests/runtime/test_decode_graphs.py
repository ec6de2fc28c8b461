"""Decode steps as graphs: what is captured for which step, and that padding changes nothing.

Without a GPU nothing is captured; the computation that would be is run each time instead.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_adapters import random_factors
from torch import Tensor

from inkling_runtime.adapter.model_spec import ModelSpec, read_model_spec
from inkling_runtime.cache.cache_tensors import CacheSizes, CacheTensors
from inkling_runtime.engine.batch import BatchBuilder
from inkling_runtime.engine.cuda_graph import (
    BUCKETS,
    DecodeGraphs,
    bucket_of,
    lora_signature,
    width_of,
)
from inkling_runtime.engine.static_batch import StaticBatch, pad_step
from inkling_runtime.engine.step_input import KeyPlaces, StepInput
from inkling_runtime.lora.adapter_table import AdapterTable
from inkling_runtime.model.checkpoint import load_checkpoint
from inkling_runtime.model.inkling import Inkling
from inkling_runtime.ops.backend import Backend, use_backend
from inkling_runtime.ops.kernels.launch import count_launches

CPU = torch.device("cpu")
SIZES = CacheSizes(global_blocks=9, sliding_blocks=7, conv_slots=11, block_size=4)


def run(compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
    return compute


@pytest.fixture(scope="module")
def model(text_folder: Path) -> Inkling:
    spec = read_model_spec(text_folder)
    weights = load_checkpoint(text_folder, spec, CPU, torch.float32).weights
    return Inkling(spec, weights)


@pytest.fixture
def spec(model: Inkling) -> ModelSpec:
    return model.spec


def make_cache(spec: ModelSpec) -> CacheTensors:
    """Return a cache full of the same random numbers."""
    cache, generator = CacheTensors(spec, SIZES, CPU, torch.float32), torch.Generator()
    for layer in cache.layers:
        for tensor in (layer.keys, layer.values, layer.conv.k, layer.conv.v, layer.conv.attn):
            tensor.normal_(generator=generator.manual_seed(3))
    return cache


def make_adapters(spec: ModelSpec, *seeds: int) -> AdapterTable:
    table = AdapterTable(spec, 4, CPU, torch.float32)
    for slot, seed in enumerate(seeds):
        table.load(slot, random_factors(spec, seed))
    return table


def places(*tables: Sequence[int], lengths: Sequence[int]) -> KeyPlaces:
    slots = tuple(
        table[(length - 1) // 4] * 4 + (length - 1) % 4
        for table, length in zip(tables, lengths, strict=True)
    )
    return KeyPlaces(tuple(map(tuple, tables)), (0,) * len(tables), tuple(lengths), slots)


def three_sequences(adapters: Sequence[int] = (-1, -1, -1)) -> StepInput:
    return StepInput(
        token_ids=(5, 2, 9),
        lengths=(1, 1, 1),
        adapters=tuple(adapters),
        conv_reads=(1, 2, 3),
        conv_writes=(1, 4, 3),
        conv_points=(),
        global_keys=places([8, 3], [1], [5, 0, 2], lengths=(6, 3, 9)),
        sliding_keys=places([2, 4], [0], [6, 1, 3], lengths=(6, 3, 9)),
    )


def eager(model: Inkling, step: StepInput, adapters: AdapterTable) -> tuple[Tensor, CacheTensors]:
    cache = make_cache(model.spec)
    batch = BatchBuilder(CPU).build(step)
    return model.forward(batch, cache.layers, adapters.layers), cache


@pytest.mark.parametrize(("count", "bucket"), [(1, 1), (2, 2), (3, 4), (9, 16), (17, 24)])
def test_a_bucket_holds_the_batch(count: int, bucket: int) -> None:
    assert bucket_of(count) == bucket


def test_there_is_no_bucket_for_a_batch_that_is_too_large() -> None:
    assert bucket_of(max(BUCKETS)) == max(BUCKETS)
    assert bucket_of(max(BUCKETS) + 1) is None


def test_tables_are_as_wide_as_the_longest_sequence_needs() -> None:
    assert width_of(places([1], lengths=[1])) == 8
    assert width_of(places(list(range(8)), lengths=[32])) == 8
    assert width_of(places([0], list(range(9)), lengths=[1, 36])) == 16


def test_padding_changes_neither_results_nor_what_sequences_own(model: Inkling) -> None:
    adapters = make_adapters(model.spec, 1, 2)
    step = three_sequences((1, -1, 0))
    scratch = make_cache(model.spec).scratch
    want, cache = eager(model, step, adapters)
    got, padded = eager(model, pad_step(step, 8, scratch, SIZES.block_size), adapters)
    torch.testing.assert_close(got[:3], want)
    for one, other in zip(padded.layers, cache.layers, strict=True):
        torch.testing.assert_close(one.keys[:-1], other.keys[:-1])
        torch.testing.assert_close(one.values[:-1], other.values[:-1])
        torch.testing.assert_close(one.conv.mlp[:-1], other.conv.mlp[:-1])


def test_scratch_places_belong_to_no_sequence(spec: ModelSpec) -> None:
    cache = make_cache(spec)
    assert cache.scratch.global_block == SIZES.global_blocks
    assert cache.scratch.sliding_block == SIZES.sliding_blocks
    assert cache.scratch.conv_slot == SIZES.conv_slots
    for layer, description in zip(cache.layers, spec.layers, strict=True):
        blocks = SIZES.sliding_blocks if description.is_sliding else SIZES.global_blocks
        assert len(layer.keys) == blocks + 1
        assert len(layer.conv.k) == SIZES.conv_slots + 1


@pytest.mark.parametrize("points", [(), ((7, 2, 1),)], ids=["plain", "with a point"])
def test_static_tensors_hold_what_a_batch_of_the_step_holds(
    spec: ModelSpec, points: tuple[tuple[int, int, int], ...]
) -> None:
    step = replace(three_sequences((2, -1, 0)), conv_points=points)
    padded = pad_step(step, 4, make_cache(spec).scratch, SIZES.block_size)
    static = StaticBatch(4, (8, 16), bool(points), True, CPU)
    addresses = [static.batch.token_ids.data_ptr(), static.batch.global_keys.block_table.data_ptr()]
    # Nothing may be left of the step before.
    before = replace(padded, global_keys=replace(padded.global_keys, blocks=((3,) * 7,) * 4))
    static.fill(before)
    static.fill(padded)
    got, want = static.batch, BatchBuilder(CPU).build(padded)
    assert torch.equal(got.token_ids, want.token_ids)
    assert torch.equal(got.adapters.ids, want.adapters.ids)
    assert torch.equal(got.segments.cu_seqlens, want.segments.cu_seqlens)
    for name in ("read_slots", "write_slots", "write_sequences", "write_ends"):
        assert torch.equal(getattr(got.conv, name), getattr(want.conv, name))
    for one, other, width in (
        (got.global_keys, want.global_keys, 8),
        (got.sliding_keys, want.sliding_keys, 16),
    ):
        assert one.block_table.shape == (4, width)
        assert torch.equal(one.block_table[:, : other.block_table.shape[1]], other.block_table)
        assert not one.block_table[:, other.block_table.shape[1] :].any()
        for name in ("slot_mapping", "starts_device", "lengths_device"):
            assert torch.equal(getattr(one, name), getattr(other, name))
            assert getattr(one, name).dtype == getattr(other, name).dtype
    assert addresses == [got.token_ids.data_ptr(), got.global_keys.block_table.data_ptr()]


def test_a_replayed_step_equals_an_eager_one(model: Inkling) -> None:
    adapters, cache = make_adapters(model.spec, 1, 2), make_cache(model.spec)
    graphs = DecodeGraphs(model, cache, adapters, run)
    step = three_sequences((1, -1, 0))
    with use_backend(Backend.TRITON):
        got = graphs.forward(step)
    want, wanted_cache = eager(model, step, adapters)
    assert got is not None
    torch.testing.assert_close(got, want, atol=2e-5, rtol=2e-5)
    for one, other in zip(cache.layers, wanted_cache.layers, strict=True):
        torch.testing.assert_close(one.conv.mlp[:-1], other.conv.mlp[:-1], atol=2e-5, rtol=2e-5)


def test_the_same_graph_serves_steps_of_one_bucket_and_another_adapter(model: Inkling) -> None:
    adapters = make_adapters(model.spec, 1)
    graphs = DecodeGraphs(model, make_cache(model.spec), adapters, lambda _: lambda: torch.ones(8))
    for slots in ((0, -1, -1), (-1, 0, 0), (0, 0, 0)):
        graphs.forward(three_sequences(slots))
    assert len(graphs) == 1
    adapters.load(0, random_factors(model.spec, 5))
    adapters.load(1, random_factors(model.spec, 6))
    graphs.forward(three_sequences((1, 0, -1)))
    assert len(graphs) == 1


def test_other_kernels_take_another_graph(model: Inkling) -> None:
    adapters = make_adapters(model.spec, 1)
    graphs = DecodeGraphs(model, make_cache(model.spec), adapters, lambda _: lambda: torch.ones(8))
    graphs.forward(three_sequences((0, -1, -1)))
    graphs.forward(three_sequences())
    assert len(graphs) == 2
    adapters.load(1, random_factors(model.spec, 6, rank=17))
    graphs.forward(three_sequences((0, -1, -1)))
    assert len(graphs) == 3
    graphs.forward(replace(three_sequences(), conv_points=((7, 2, 1),)))
    assert len(graphs) == 4
    graphs.forward(three_sequences())
    assert len(graphs) == 4


def test_a_site_that_came_back_is_another_one(model: Inkling) -> None:
    adapters = make_adapters(model.spec, 1)
    before, kept = lora_signature(adapters.layers), [dict(sites) for sites in adapters.layers]
    adapters.clear(0)
    adapters.load(0, random_factors(model.spec, 1))
    assert lora_signature(adapters.layers) != before
    assert kept


def test_steps_with_a_prompt_are_not_for_graphs(model: Inkling) -> None:
    graphs = DecodeGraphs(model, make_cache(model.spec), make_adapters(model.spec), run)
    step = three_sequences()
    prompt = replace(step, token_ids=(5, 5, 2, 9), lengths=(2, 1, 1))
    assert graphs.forward(prompt) is None
    assert len(graphs) == 0


def test_on_a_cpu_nothing_is_captured(model: Inkling) -> None:
    graphs = DecodeGraphs(model, make_cache(model.spec), make_adapters(model.spec))
    assert graphs.forward(three_sequences()) is None


def test_a_batch_without_adapters_launches_what_an_engine_without_them_does(
    model: Inkling,
) -> None:
    step = three_sequences()
    counts = []
    for adapters in (make_adapters(model.spec, 1, 2), make_adapters(model.spec)):
        graphs = DecodeGraphs(model, make_cache(model.spec), adapters, run)
        with use_backend(Backend.TRITON), count_launches() as launches:
            graphs.forward(step)
        counts.append(launches)
    assert counts[0] == counts[1]
