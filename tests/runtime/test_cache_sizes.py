"""How much a cache holds: within its budget, no more than is of use, and what a machine has."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import TEXT

from inkling_runtime.adapter.model_spec import ModelSpec, parse_model_spec
from inkling_runtime.cache.available_memory import available_memory, sensible_cache_memory
from inkling_runtime.cache.cache import SLOTS_PER_SEQUENCE, Cache
from inkling_runtime.cache.cache_sizes import CacheNeeds, cache_bytes, plan_cache_sizes
from inkling_runtime.cache.cache_tensors import CacheSizes, CacheTensors
from inkling_runtime.errors import InklingError

SPEC = parse_model_spec({"model_type": "inkling_text", **TEXT})
LONG = replace(SPEC, max_positions=1 << 20, sliding_window=512)
NEEDS = CacheNeeds(max_sequences=5, max_chunk=20, block_size=8, bytes_per_number=4)
KINDS = [
    SPEC,
    LONG,
    replace(SPEC, layers=tuple(layer for layer in SPEC.layers if layer.is_sliding)),
    replace(SPEC, layers=tuple(layer for layer in SPEC.layers if not layer.is_sliding)),
]


def test_the_bytes_are_those_of_the_tensors() -> None:
    sizes = CacheSizes(global_blocks=3, sliding_blocks=5, conv_slots=7, block_size=8)
    cache = CacheTensors(SPEC, sizes, torch.device("cpu"), torch.float32)
    tensors = [
        tensor
        for layer in cache.layers
        for tensor in (
            layer.keys,
            layer.values,
            layer.conv.k,
            layer.conv.v,
            layer.conv.attn,
            layer.conv.mlp,
        )
    ]
    assert cache_bytes(SPEC, NEEDS, sizes) == sum(tensor.nbytes for tensor in tensors)


def test_no_more_is_taken_than_all_sequences_at_their_longest_need() -> None:
    sizes = plan_cache_sizes(SPEC, NEEDS, 1 << 40)
    assert sizes.global_blocks == 5 * 50
    cache = Cache(sizes, SPEC.sliding_window)
    running = [cache.admit(None, [index], 400, 20) for index in range(5)]
    assert None not in running


@pytest.mark.parametrize("spec", KINDS, ids=["both", "long", "sliding", "global"])
@given(
    budget=st.integers(200_000, 1 << 34),
    max_sequences=st.integers(1, 300),
    max_chunk=st.integers(1, 3000),
    block_size=st.sampled_from([1, 16, 64]),
)
def test_a_cache_is_within_its_budget_and_runs_a_sequence(
    spec: ModelSpec, budget: int, max_sequences: int, max_chunk: int, block_size: int
) -> None:
    needs = CacheNeeds(max_sequences, max_chunk, block_size, 2)
    try:
        sizes = plan_cache_sizes(spec, needs, budget)
    except InklingError as error:
        least = int(error.message.split()[-1])
    else:
        least = cache_bytes(spec, needs, sizes)
        assert least <= budget
    budget = max(budget, least)
    sizes = plan_cache_sizes(spec, needs, budget)
    assert cache_bytes(spec, needs, sizes) <= budget
    cache = Cache(sizes, spec.sliding_window)
    cache.require_fits(1, max_chunk)
    assert cache.admit(None, [3], 1, max_chunk) is not None


def test_the_smallest_budget_that_is_named_is_enough() -> None:
    with pytest.raises(InklingError) as caught:
        plan_cache_sizes(SPEC, NEEDS, 1)
    least = int(caught.value.message.split()[-1])
    with pytest.raises(InklingError):
        plan_cache_sizes(SPEC, NEEDS, least - 1)
    sizes = plan_cache_sizes(SPEC, NEEDS, least)
    assert sizes.global_blocks == 1
    assert sizes.conv_slots > SLOTS_PER_SEQUENCE


def test_available_memory_is_what_the_system_and_the_control_group_leave(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 900 kB\nMemAvailable: 700 kB\n")
    assert available_memory(meminfo, tmp_path) == 700 << 10
    (tmp_path / "memory.max").write_text("600000\n")
    (tmp_path / "memory.current").write_text("150000\n")
    assert available_memory(meminfo, tmp_path) == 450_000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(meminfo, tmp_path) == 700 << 10
    assert available_memory(tmp_path / "nothing", tmp_path) == 4 << 30


def test_a_cache_on_a_cpu_leaves_memory_for_others() -> None:
    assert 0 < sensible_cache_memory(torch.device("cpu")) < available_memory()
