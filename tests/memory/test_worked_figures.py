"""The figures that were worked out or published for the released models, to the printed digit."""

from dataclasses import replace

import pytest

from inkling_cli.memory.adapter_size import adapter_elements
from inkling_cli.memory.base import WeightKind, base_parts
from inkling_cli.memory.setup import Parallel, Setup, WeightFormat
from inkling_cli.memory.sizes import Sizes, sizes_of
from inkling_cli.memory.slots import ModuleKind
from inkling_runtime.adapter.model_spec import ModelSpec
from memory.released import BIG, SMALL

GIB, MIB = 1 << 30, 1 << 20
CORE_TARGETS = ("qkvr", "wo_ud", "gate_up_proj", "down_proj")


def parallel(tensor: int, expert: int = 1) -> Parallel:
    return Parallel(tensor, tensor, expert, tensor // expert)


def pooled(sizes: Sizes, *kinds: ModuleKind) -> int:
    return sum(part.pooled_bytes for part in sizes.slot if not kinds or part.kind in kinds)


VLLM_GIB = {
    (16, 1, 1): (4.72, 13.68),
    (16, 4, 1): (1.28, 10.25),
    (16, 8, 1): (0.71, 9.68),
    (16, 8, 8): (0.71, 1.80),
    (32, 1, 1): (9.44, 27.37),
    (32, 4, 1): (2.57, 20.50),
    (32, 8, 1): (1.42, 19.35),
    (32, 8, 8): (1.42, 3.60),
    (64, 1, 1): (18.88, 54.73),
    (64, 4, 1): (5.13, 40.99),
    (64, 8, 1): (2.84, 38.70),
    (64, 8, 8): (2.84, 7.20),
}
"""Rank limit, tensor and expert parallel sizes → GiB of a slot, shared-outer and per expert."""


@pytest.mark.parametrize(("rank", "tensor", "expert"), VLLM_GIB)
def test_vllm_slots_of_the_large_model(rank: int, tensor: int, expert: int) -> None:
    for is_shared, gib in zip((True, False), VLLM_GIB[rank, tensor, expert], strict=True):
        setup = Setup("vllm", parallel(tensor, expert), max_rank=rank, is_shared_outer=is_shared)
        assert round(pooled(sizes_of(BIG, setup)) / GIB, 2) == gib


def test_vllm_slot_by_kind_of_module() -> None:
    sizes = sizes_of(BIG, Setup("vllm", parallel(8), max_rank=32))
    kinds = ModuleKind
    assert pooled(sizes, kinds.ROUTED_GATE_UP, kinds.ROUTED_DOWN) == 1224 * MIB
    assert int(pooled(sizes, kinds.QKVR) / MIB) == 105
    assert pooled(sizes, kinds.SHARED_GATE_UP, kinds.SHARED_DOWN) == 81 * MIB
    assert round(pooled(sizes, kinds.WO) / MIB) == 29
    assert round(pooled(sizes, kinds.HEAD) / MIB, 1) == 12.6
    assert round(pooled(sizes, kinds.DENSE_GATE_UP, kinds.DENSE_DOWN) / MIB, 1) == 2.6


def test_vllm_slot_of_one_rank_is_an_adapter_of_its_rank() -> None:
    slot = pooled(sizes_of(BIG, Setup("vllm", max_rank=32)))
    assert slot == 2 * adapter_elements(BIG, 32, has_padded_head=True)


def test_vllm_per_expert_slots_of_the_small_model_take_8_gb_more() -> None:
    shared, apart = (
        pooled(sizes_of(SMALL, Setup("vllm", max_rank=32, is_shared_outer=is_shared)))
        for is_shared in (True, False)
    )
    assert round((apart - shared) / 1e9, 1) == 8.0


SGLANG_GIB = {
    "rank 32, 8 ranks": (1.523, Setup("sglang", parallel(8), max_rank=32)),
    "and experts dealt to them": (1.523, Setup("sglang", parallel(8, 8), max_rank=32)),
    "rank 16": (0.762, Setup("sglang", parallel(8), max_rank=16)),
    "rank 32, one rank": (9.82, Setup("sglang", max_rank=32)),
    "per expert": (20.1, Setup("sglang", parallel(8), max_rank=32, is_shared_outer=False)),
}


@pytest.mark.parametrize("name", SGLANG_GIB)
def test_sglang_slots_of_the_large_model(name: str) -> None:
    gib, setup = SGLANG_GIB[name]
    found = pooled(sizes_of(BIG, replace(setup, targets=CORE_TARGETS))) / GIB
    digits = len(str(gib).partition(".")[2])
    assert abs(found - gib) <= 0.51 * 10**-digits


def test_sglang_slot_by_kind_of_module() -> None:
    setup = Setup("sglang", parallel(8), max_rank=32)
    sizes = sizes_of(BIG, setup)
    parts = {part.kind: part for part in sizes.slot}
    assert 2 * parts[ModuleKind.ROUTED_GATE_UP].b == 792 * MIB
    assert 2 * parts[ModuleKind.ROUTED_DOWN].a == 396 * MIB
    assert 2 * parts[ModuleKind.QKVR].a == 99 * MIB
    assert round(parts[ModuleKind.EMBEDDING].pooled_bytes / MIB, 1) == 25.2
    assert round(parts[ModuleKind.HEAD].pooled_bytes / MIB, 1) == 3.8
    assert round(pooled(sizes) / GIB, 3) == 1.552
    large = (792 + 396 + 99) * MIB
    assert all(2 * max(part.a, part.b) <= large for part in sizes.slot)
    one_rank = sizes_of(BIG, Setup("sglang", max_rank=32))
    parts = {part.kind: part for part in one_rank.slot}
    assert 2 * parts[ModuleKind.ROUTED_GATE_UP].b == 6336 * MIB
    assert 2 * parts[ModuleKind.ROUTED_DOWN].a == 3168 * MIB
    apart = sizes_of(BIG, Setup("sglang", parallel(8), max_rank=32, is_shared_outer=False))
    parts = {part.kind: part for part in apart.slot}
    assert round(2 * parts[ModuleKind.ROUTED_GATE_UP].a / GIB, 1) == 12.4
    assert round(2 * parts[ModuleKind.ROUTED_DOWN].b / GIB, 1) == 6.2


def test_sglang_routed_factors_are_three_quarters_of_the_pool() -> None:
    sizes = sizes_of(BIG, Setup("sglang", parallel(8), max_rank=32, targets=CORE_TARGETS))
    parts = {part.kind: part for part in sizes.slot}
    inner = parts[ModuleKind.ROUTED_GATE_UP].b + parts[ModuleKind.ROUTED_DOWN].a
    assert round(100 * 2 * inner / pooled(sizes)) == 76


def test_sglang_pool_of_the_default_eight_slots() -> None:
    setup = Setup("sglang", parallel(8), max_rank=32, targets=CORE_TARGETS)
    assert round(8 * pooled(sizes_of(BIG, setup)) / GIB, 1) == 12.2


PER_RANK = {
    "Inkling": (BIG, 158_337_344, (2.53, 5.07, 10.13, 20.27, 40.5), 29.4),
    "Inkling-Small": (SMALL, 66_020_672, (1.06, 2.11, 4.23, 8.45, 16.9), 12.2),
}
"""Spec, parameters for each unit of rank, GB at rank 8 to 128, GB of rank 32 expanded."""


@pytest.mark.parametrize("name", PER_RANK)
def test_released_adapters_on_disk(name: str) -> None:
    spec, per_rank, sizes, expanded = PER_RANK[name]
    assert adapter_elements(spec, 1, has_padded_head=True) == per_rank
    for rank, gigabytes in zip((8, 16, 32, 64, 128), sizes, strict=True):
        found = 2 * adapter_elements(spec, rank, has_padded_head=True) / 1e9
        assert float(f"{found:.{2 if gigabytes < 40 and gigabytes != 16.9 else 1}f}") == gigabytes
    apart = 2 * adapter_elements(spec, 32, is_shared_outer=False, has_padded_head=True)
    assert round(apart / 1e9, 1) == expanded


@pytest.mark.parametrize(
    ("spec", "dense", "sparse"), [(BIG, 86_016, 2_414_592), (SMALL, 57_344, 1_609_728)]
)
def test_parameters_of_a_layer(spec: ModelSpec, dense: int, sparse: int) -> None:
    head = spec.hidden_size + spec.unpadded_vocab_size

    def mlp(index: int) -> int:
        layer = spec.layers[index]
        rows = (layer.num_heads + 2 * layer.num_kv_heads) * layer.head_dim
        rows += layer.num_heads * spec.d_rel
        attention = 5 * spec.hidden_size + rows + layer.num_heads * layer.head_dim
        return adapter_elements(replace(spec, layers=(layer,)), 1) - head - attention

    assert mlp(0) == dense
    assert mlp(2) == sparse


KV_MB = {1024: 277, 8192: 600}


@pytest.mark.parametrize("length", KV_MB)
def test_cache_of_a_sequence_of_the_large_model(length: int) -> None:
    cache = sizes_of(BIG, Setup("vllm")).cache
    kv = cache.sequence_bytes(length) - cache.conv_bytes_per_sequence
    assert round(kv / 1e6) == KV_MB[length]
    long = cache.sequence_bytes(131_072) - cache.conv_bytes_per_sequence
    assert round(long / 1e9, 1) == 6.1


def test_convolution_rows_of_vllm_are_powers_of_two() -> None:
    heads, blocks = {False: 8, True: 16}, 4 * 2
    widths = {False: 2048, True: 1024}
    rows = sum(heads[layer.is_sliding] * widths[layer.is_sliding] for layer in BIG.layers)
    assert sizes_of(BIG, Setup("vllm")).cache.conv_bytes == blocks * rows


@pytest.mark.parametrize(("spec", "parameters"), [(BIG, 952e9), (SMALL, 266e9)])
def test_base_weights_are_the_published_count_less_towers_and_drafts(
    spec: ModelSpec, parameters: float
) -> None:
    found = sum(part.nbytes for part in base_parts(spec, Setup("sglang"))) / 2
    assert 0.99 * parameters < found < parameters


def test_nvfp4_stores_routed_experts_in_nine_sixteenths_of_a_byte() -> None:
    bf16, nvfp4 = (
        {part.kind: part.nbytes for part in base_parts(BIG, Setup("vllm", weights=weights))}
        for weights in WeightFormat
    )
    routed = WeightKind.ROUTED
    assert nvfp4.pop(routed) * 32 == bf16.pop(routed) * 9
    assert nvfp4 == bf16
