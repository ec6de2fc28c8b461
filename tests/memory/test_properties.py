"""What must hold for any model and any launch, whatever the figures."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factories import TINY, raw_config
from inkling_cli.memory.plan import plan_server
from inkling_cli.memory.setup import EngineName, Parallel, Setup
from inkling_cli.memory.sizes import fit, sizes_of
from inkling_cli.memory.slots import ModuleKind
from inkling_runtime.adapter.model_spec import ModelSpec, parse_model_spec
from memory.released import BIG, SMALL

TINY_SPEC = parse_model_spec(raw_config(TINY))
SPECS = st.sampled_from([BIG, SMALL, TINY_SPEC])
ENGINES: tuple[EngineName, ...] = ("vllm", "sglang")
SHARDS = (1, 2, 4, 8)

setups = st.builds(
    Setup,
    engine=st.sampled_from(ENGINES),
    parallel=st.builds(
        lambda tensor, is_expert: Parallel(
            tensor, tensor, tensor if is_expert else 1, 1 if is_expert else tensor
        ),
        st.sampled_from(SHARDS),
        st.booleans(),
    ),
    has_lora=st.booleans(),
    max_rank=st.sampled_from((1, 8, 16, 32, 512)),
    num_slots=st.integers(1, 40),
    is_shared_outer=st.booleans(),
    is_fully_sharded=st.booleans(),
    sink_buffers=st.sampled_from(("legacy", "v2")),
    context=st.sampled_from((1, 4096, 1_048_576)),
)


@settings(deadline=None)
@given(SPECS, setups)
def test_memory_is_never_negative_and_adds_up(spec: ModelSpec, setup: Setup) -> None:
    sizes = sizes_of(spec, setup)
    assert all(part.a >= 0 <= part.b and part.idle <= part.a + part.b for part in sizes.slot)
    assert sizes.slots_bytes == setup.has_lora * setup.num_slots * sizes.slot_bytes
    assert sizes.fixed_bytes == sizes.base_bytes + sizes.slots_bytes > 0


@settings(deadline=None)
@given(SPECS, setups, st.integers(1 << 30, 1 << 44))
def test_parts_of_a_gpu_are_the_whole_gpu(spec: ModelSpec, setup: Setup, gpu_bytes: int) -> None:
    sizes = sizes_of(spec, setup)
    found = fit(sizes, gpu_bytes)
    assert found.reserve_bytes + sizes.fixed_bytes + found.cache_bytes == gpu_bytes
    assert 0 <= found.reserve_bytes <= gpu_bytes
    if sizes.slot:
        is_enough = fit(sizes_of(spec, replace(setup, num_slots=found.max_slots)), gpu_bytes)
        one_more = replace(setup, num_slots=found.max_slots + 1)
        assert found.max_slots == 0 or is_enough.is_enough
        assert not fit(sizes_of(spec, one_more), gpu_bytes).is_enough


@settings(deadline=None)
@given(SPECS, setups)
def test_slots_grow_with_the_rank(spec: ModelSpec, setup: Setup) -> None:
    setup = replace(setup, has_lora=True, is_fully_sharded=False)
    slots = [sizes_of(spec, replace(setup, max_rank=r)).slot_bytes for r in (1, 2, 8, 64)]
    assert [slot // slots[0] for slot in slots] == [1, 2, 8, 64]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("spec", [BIG, SMALL], ids=["big", "small"])
def test_a_choice_costs_what_it_says(engine: EngineName, spec: ModelSpec) -> None:
    setup = Setup(engine, Parallel(4, 4, 1, 4), max_rank=64, num_slots=3)
    plan = plan_server(spec, setup, adapter_limit=32)
    choices = {choice.words.partition(" ")[0]: choice for choice in plan.choices}
    assert 2 * choices["--max-lora-rank"].sizes.slots_bytes == plan.sizes.slots_bytes
    slots = "--max-loras" if engine == "vllm" else "--max-loras-per-batch"
    counts = [c.sizes.slots_bytes for c in plan.choices if c.words.startswith(slots + " ")]
    assert counts == [2 * plan.sizes.slot_bytes, 4 * plan.sizes.slot_bytes]
    assert all(c.sizes.fixed_bytes for c in plan.choices)


@pytest.mark.parametrize("spec", [BIG, SMALL], ids=["big", "small"])
def test_divided_factors_of_all_ranks_are_the_undivided_ones(spec: ModelSpec) -> None:
    one = {part.kind: part for part in sizes_of(spec, Setup("vllm", max_rank=32)).slot}
    for ranks in (2, 4, 8):
        setup = Setup("vllm", Parallel(ranks, ranks, 1, ranks), max_rank=32)
        many = {part.kind: part for part in sizes_of(spec, setup).slot}
        for kind in (ModuleKind.QKVR, ModuleKind.DENSE_GATE_UP, ModuleKind.ROUTED_GATE_UP):
            assert many[kind].b * ranks == one[kind].b
            assert many[kind].a == one[kind].a
        for kind in (ModuleKind.WO, ModuleKind.DENSE_DOWN, ModuleKind.ROUTED_DOWN):
            assert many[kind].a * ranks == one[kind].a
            assert many[kind].b == one[kind].b
        assert many[ModuleKind.HEAD] == one[ModuleKind.HEAD]


def test_experts_dealt_to_ranks_take_as_much_as_experts_divided() -> None:
    for engine in ENGINES:
        setup = Setup(engine, Parallel(8, 8, 1, 8), max_rank=32)
        dealt = setup.with_expert_parallel(True)
        assert dealt.parallel == Parallel(8, 8, 8, 1)
        assert dealt.with_expert_parallel(False) == setup
        assert sizes_of(BIG, dealt).fixed_bytes == sizes_of(BIG, setup).fixed_bytes


def test_ranks_beyond_the_kv_heads_copy_them() -> None:
    slots = {
        ranks: {
            part.kind: part
            for part in sizes_of(BIG, Setup("sglang", Parallel(ranks, ranks, 1, ranks))).slot
        }[ModuleKind.QKVR].b
        for ranks in (8, 16, 32)
    }
    assert slots[16] > slots[8] / 2
    assert slots[32] > slots[16] / 2


def test_pipeline_stages_hold_fewer_layers_each() -> None:
    whole = sizes_of(BIG, Setup("vllm")).base_bytes
    stages = [
        sizes_of(BIG, Setup("vllm", Parallel(pipeline=count))).base_bytes for count in (1, 2, 4, 8)
    ]
    assert stages[0] == whole
    assert all(later < earlier for earlier, later in pairwise(stages))
    assert stages[1] > whole / 2


def test_unused_targets_take_nothing() -> None:
    setup = Setup("sglang", targets=("qkvr", "wo_ud"))
    assert [part.kind for part in sizes_of(BIG, setup).slot] == [ModuleKind.QKVR, ModuleKind.WO]
    assert not any(part.idle for part in sizes_of(BIG, setup).slot)
    both = sizes_of(BIG, replace(setup, targets=("embed_tokens", "lm_head")))
    head = sizes_of(BIG, replace(setup, targets=("lm_head",)))
    assert {p.kind: p.a for p in both.slot}[ModuleKind.HEAD] == 2 * head.slot[0].a
