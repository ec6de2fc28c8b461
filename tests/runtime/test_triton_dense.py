"""The Triton kernels of the dense parts against the references of their ops."""

import pytest
import torch
from op_cases import ADAPTER_MIXES, KERNEL_TOLERANCES, assert_close, pair, randn
from torch import Tensor
from triton_device import DEVICE, MARKS

from inkling_runtime.ops.backend import Backend, use_backend
from inkling_runtime.ops.conv_plan import ConvPlan
from inkling_runtime.ops.kernels.launch import count_launches
from inkling_runtime.ops.lora_expand import expand_pending, expand_pending_reference
from inkling_runtime.ops.lora_linear import (
    lora_linear,
    lora_linear_deferred,
    lora_linear_reference,
)
from inkling_runtime.ops.lora_pair import LoraPair
from inkling_runtime.ops.lora_shrink import lora_shrink, lora_shrink_reference
from inkling_runtime.ops.lora_slots import LoraPart, LoraSlots, pair_of
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.qkvr_prologue import (
    HeadShape,
    PrologueState,
    PrologueWeights,
    qkvr_prologue,
    qkvr_prologue_reference,
)
from inkling_runtime.ops.rms_norm import (
    add_rms_norm,
    add_rms_norm_reference,
    rms_norm,
    rms_norm_reference,
)
from inkling_runtime.ops.segments import Segments
from inkling_runtime.ops.short_conv import short_conv, short_conv_reference
from inkling_runtime.ops.silu_and_mul import (
    silu_and_mul,
    silu_and_mul_deferred,
    silu_and_mul_reference,
)
from inkling_runtime.ops.token_adapters import TokenAdapters

pytestmark = MARKS
DTYPES = pytest.mark.parametrize("dtype", KERNEL_TOLERANCES, ids=str)
MIXES = pytest.mark.parametrize("ids", ADAPTER_MIXES.values(), ids=ADAPTER_MIXES)
CHANNELS = 70


@pytest.fixture(autouse=True)
def _triton() -> object:
    with use_backend(Backend.TRITON):
        yield


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return randn(*shape, seed=seed, dtype=dtype).to(DEVICE)


def site(
    in_features: int,
    out_features: int,
    dtype: torch.dtype = torch.float32,
    ranks: tuple[int, ...] = (2, 5, 0),
    experts: tuple[int, int] | None = None,
) -> LoraSlots:
    """Return one adapter per rank, rank 0: it does not have the site."""
    pairs = [
        None if rank == 0 else pair(in_features, out_features, rank, dtype, experts)
        for rank in ranks
    ]
    moved = [p and LoraPair(p.a.to(DEVICE), p.b.to(DEVICE), p.scaling) for p in pairs]
    return LoraSlots(moved, DEVICE)


def tokens(ids: list[int]) -> TokenAdapters:
    return TokenAdapters.from_ids(ids, DEVICE)


def pending(parts: list[LoraPart], ids: list[int], splits: int = 3, seed: int = 0) -> PendingDelta:
    """Return a delta whose undefined sums are NaN."""
    adapters, columns, width = tokens(ids), [], 0
    for part in parts:
        columns.append(width)
        width += part.slots.max_rank + 3
    sums = torch.full((splits, len(ids), width), torch.nan, device=DEVICE)
    for t, adapter in enumerate(ids):
        for part, column in zip(parts, columns, strict=True):
            own = pair_of(part.slots, adapter)
            if own is not None:
                values = random(splits, own.rank, seed=seed + t)
                sums[:, t, column : column + own.rank] = values
    return PendingDelta(sums, tuple(parts), tuple(columns), adapters)


# Norm and activation


@DTYPES
@pytest.mark.parametrize("shape", [(7, 24), (1, 70), (5, 3, 8), (0, 24)], ids=str)
def test_norms_equal_their_references(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, residual = 3 * random(*shape, dtype=dtype), random(*shape, seed=1, dtype=dtype)
    weight = random(shape[-1], seed=2, dtype=dtype)
    assert_close(rms_norm(x, weight, 1e-3), rms_norm_reference(x, weight, 1e-3))
    normed, total = add_rms_norm(x, residual, weight, 1e-3)
    want_normed, want_total = add_rms_norm_reference(x, residual, weight, 1e-3)
    assert_close(normed, want_normed)
    assert_close(total, want_total)


@DTYPES
@pytest.mark.parametrize("shape", [(7, 24), (2, 3, 10), (18, 310), (0, 4)], ids=str)
def test_activation_equals_its_reference(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    gate_up = 3 * random(*shape, dtype=dtype)
    assert_close(silu_and_mul(gate_up, 1.3), silu_and_mul_reference(gate_up, 1.3))


# LoRA


@DTYPES
def test_sums_of_several_sites_equal_the_reference(dtype: torch.dtype) -> None:
    ids = [*ADAPTER_MIXES["some"] * 2, *ADAPTER_MIXES["none"], *ADAPTER_MIXES["one"]]
    x = random(len(ids), 700, dtype=dtype)
    sites = [site(700, 9, dtype), site(700, 6, dtype, (0, 70, 1)), site(700, 3, dtype, (1, 0, 2))]
    check_sums(x, sites, ids)


def check_sums(x: Tensor, sites: list[LoraSlots], ids: list[int]) -> None:
    with count_launches() as launches:
        got = lora_shrink(x, sites, tokens(ids))
    assert launches.total() == 1
    want = lora_shrink_reference(x, sites, tokens(ids))
    sums = got.values.sum(0)
    for t, adapter in enumerate(ids):
        for i, slots in enumerate(sites):
            own = pair_of(slots, adapter)
            if own is None:
                continue
            at, want_at = got.columns[i], want.columns[i]
            torch.testing.assert_close(
                sums[t, at : at + own.rank],
                want.values[0, t, want_at : want_at + own.rank],
                atol=2e-6,
                rtol=2e-5,
            )


def test_an_input_may_be_a_slice_of_wider_rows() -> None:
    x, ids = random(5, 90)[:, 10:50], [0, 1, 1, -1, 0]
    check_sums(x, [site(40, 9)], ids)


@DTYPES
@pytest.mark.parametrize("splits", [1, 11])
def test_expanded_deltas_equal_the_reference(splits: int, dtype: torch.dtype) -> None:
    ids = [*ADAPTER_MIXES["some"] * 2, *ADAPTER_MIXES["none"], *ADAPTER_MIXES["one"]]
    y = random(len(ids), 91, dtype=dtype)
    parts = [
        LoraPart(3, 20, site(8, 17, dtype, (5, 40, 0))),
        LoraPart(20, 91, site(8, 71, dtype, (0, 3, 1))),
    ]
    delta, before = pending(parts, ids, splits), y.clone()
    want = expand_pending_reference(y, delta)
    assert_close(expand_pending(y, delta), want)
    assert torch.equal(y[:, :3], before[:, :3])
    for row, adapter in enumerate(ids):
        if adapter == -1:
            assert torch.equal(y[row], before[row])


def expert_parts(stop: int) -> list[LoraPart]:
    """Return three parts of the same features, each of another expert's B."""
    slots = site(8, stop, experts=(3, 3))
    return [LoraPart(0, stop, slots, expert) for expert in range(3)]


def test_parts_of_the_same_features_are_added_up() -> None:
    y, delta = random(4, 9), pending(expert_parts(9), [0, 1, -1, 2])
    want = expand_pending_reference(y, delta)
    assert_close(expand_pending(y, delta), want)


def test_parts_that_overlap_in_part_are_refused() -> None:
    slots = site(8, 6)
    delta = pending([LoraPart(0, 6, slots), LoraPart(3, 9, slots)], [0])
    with pytest.raises(ValueError, match="0 to 6 and 3 to 9"):
        expand_pending(random(1, 9), delta)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_an_adapter_of_infinite_factors_harms_only_its_own_tokens() -> None:
    slots = site(40, 9, ranks=(3, 2))
    slots[0].a.fill_(torch.inf)
    slots[0].b.fill_(torch.inf)
    x, weight, ids = random(4, 40), random(9, 40), [0, 1, -1, 1]
    y = lora_linear(x, weight, [LoraPart(0, 9, slots)], tokens(ids))
    want = lora_linear_reference(x, weight, [LoraPart(0, 9, slots)], tokens(ids))
    assert_close(y[1:], want[1:])


@DTYPES
@MIXES
def test_linear_with_deltas_equals_its_reference(ids: list[int], dtype: torch.dtype) -> None:
    x, weight = random(len(ids), 12, dtype=dtype), random(17, 12, dtype=dtype) * 0.3
    parts = [LoraPart(0, 9, site(12, 9, dtype)), LoraPart(11, 17, site(12, 6, dtype))]
    y = lora_linear(x, weight, parts, tokens(ids))
    assert_close(y, lora_linear_reference(x, weight, parts, tokens(ids)))
    plain = torch.nn.functional.linear(x, weight)
    for row, adapter in enumerate(ids):
        if adapter == -1:
            assert torch.equal(y[row], plain[row])


@pytest.mark.parametrize("ranks", [(8, 16), (5, 200)], ids=str)
def test_a_swapped_adapter_is_found_at_the_old_places(ranks: tuple[int, int]) -> None:
    slots = site(12, 9, ranks=ranks)
    x, weight, part = random(3, 12), random(9, 12), LoraPart(0, 9, slots)
    table = slots.table.data_ptr()
    slots.put(0, slots[1])
    slots.clear(1)
    y = lora_linear(x, weight, [part], tokens([0, 1, -1]))
    assert_close(y, lora_linear_reference(x, weight, [part], tokens([0, 1, -1])))
    assert slots.table.data_ptr() == table


# Between two maps of a dense MLP


@DTYPES
@pytest.mark.parametrize("has_gate", [True, False])
def test_activation_adds_its_deltas_and_gives_the_sums_of_the_next_map(
    has_gate: bool, dtype: torch.dtype
) -> None:
    ids = [*ADAPTER_MIXES["some"] * 2, *ADAPTER_MIXES["distinct"]]
    gate_up = random(len(ids), 310, dtype=dtype)
    parts = [LoraPart(0, 155, site(8, 155, dtype))] if has_gate else []
    parts.append(LoraPart(155, 310, site(8, 155, dtype, (3, 0, 20))))
    down, weight = site(155, 6, dtype, (0, 18, 2)), random(6, 155, dtype=dtype)
    delta = pending(parts, ids, 2)
    with count_launches() as launches:
        hidden, sums = silu_and_mul_deferred(gate_up.clone(), 0.7, delta, down, tokens(ids))
        y, rest = lora_linear_deferred(hidden, weight, [LoraPart(0, 6, down)], tokens(ids), sums)
    assert launches.total() == 1
    want = silu_and_mul_reference(expand_pending_reference(gate_up, delta), 0.7)
    assert_close(hidden, want)
    assert_close(
        expand_pending(y, rest),
        lora_linear_reference(hidden, weight, [LoraPart(0, 6, down)], tokens(ids)),
    )


def test_a_rank_too_large_for_the_activation_is_left_to_the_next_map() -> None:
    down = site(20, 6, ranks=(130, 4))
    hidden, sums = silu_and_mul_deferred(random(3, 40), 1.0, None, down, tokens([0, 1, -1]))
    assert sums is None
    assert_close(hidden, silu_and_mul_reference(random(3, 40)))


# Short convolution

LENGTHS = pytest.mark.parametrize(
    "lengths",
    [[1], [1] * 20, [5, 1, 2, 3, 4], [*[1] * 11, 22, 2]],
    ids=str,
)


def conv_case(
    lengths: list[int], dtype: torch.dtype, taps: int = 4, in_place: bool = True
) -> tuple[Tensor, Tensor, Tensor, ConvPlan]:
    segments, count = Segments.from_lengths(lengths, DEVICE), len(lengths)
    reads = [3 * i % 31 for i in range(count)]
    writes = reads if in_place else list(range(31, 31 + count))
    return (
        random(sum(lengths), CHANNELS, dtype=dtype),
        random(taps, CHANNELS),
        random(80, taps - 1, CHANNELS, dtype=dtype),
        ConvPlan.make(segments, reads, writes),
    )


@DTYPES
@LENGTHS
@pytest.mark.parametrize("in_place", [True, False])
def test_convolution_and_states_equal_the_reference(
    in_place: bool, lengths: list[int], dtype: torch.dtype
) -> None:
    x, weight, state, plan = conv_case(lengths, dtype, in_place=in_place)
    check_conv(x, weight, state, plan)


@pytest.mark.parametrize("taps", [1, 2, 3])
@pytest.mark.parametrize("lengths", [[1] * 17, [14, 1, 2, 16]], ids=str)
def test_any_number_of_taps_is_right(lengths: list[int], taps: int) -> None:
    check_conv(*conv_case(lengths, torch.float32, taps))


def check_conv(x: Tensor, weight: Tensor, state: Tensor, plan: ConvPlan) -> None:
    want_state = state.clone()
    with count_launches() as launches:
        y = short_conv(x, weight, state, plan)
    assert launches.total() == 1
    assert_close(y, short_conv_reference(x, weight, want_state, plan))
    assert torch.equal(state, want_state)


@pytest.mark.parametrize("before", range(9, 18))
def test_a_state_is_read_before_it_is_overwritten_wherever_its_sequence_begins(
    before: int,
) -> None:
    x, weight, state, plan = conv_case([before, 2, 20], torch.float32)
    check_conv(x, weight, state, plan)


def test_states_of_points_are_written_too() -> None:
    lengths, weight = [5, 1, 33, 2], random(4, CHANNELS)
    segments, x = Segments.from_lengths(lengths, DEVICE), random(41, CHANNELS)
    points = [(10, 0, 2), (11, 2, 1), (12, 2, 16), (13, 2, 32), (14, 3, 1)]
    plan = ConvPlan.make(segments, [0, 1, 2, 3], [0, 1, 2, 3], points)
    check_conv(x, weight, random(20, 3, CHANNELS), plan)


def test_points_of_one_token_sequences_are_their_ends() -> None:
    segments, x = Segments.from_lengths([1] * 20, DEVICE), random(20, CHANNELS)
    reads = list(range(20))
    plan = ConvPlan.make(segments, reads, reads, [(25, 3, 1), (21, 17, 1)])
    check_conv(x, random(4, CHANNELS), random(30, 3, CHANNELS), plan)


def adapter_of_token(lengths: list[int]) -> list[int]:
    return [[0, -1, 1, 2][i % 4] for i, n in enumerate(lengths) for _ in range(n)]


@DTYPES
@LENGTHS
def test_pending_deltas_and_the_residual_add_no_launch(
    lengths: list[int], dtype: torch.dtype
) -> None:
    x, weight, state, plan = conv_case(lengths, dtype)
    ids, residual = adapter_of_token(lengths), random(sum(lengths), CHANNELS, seed=5, dtype=dtype)
    deltas = (
        pending([LoraPart(0, CHANNELS, site(8, CHANNELS, dtype))], ids, 9),
        pending([LoraPart(0, CHANNELS, site(8, CHANNELS, dtype, (0, 36, 4)))], ids, 1, seed=3),
    )
    want_state = state.clone()
    with count_launches() as launches:
        y = short_conv(x.clone(), weight, state, plan, residual=residual, pending=deltas)
    assert launches.total() == 1
    want = short_conv_reference(x, weight, want_state, plan, residual=residual, pending=deltas)
    assert_close(y, want, roundings=2)
    assert_close(state, want_state, roundings=2)
    plain_state = conv_case(lengths, dtype)[2]
    plain = short_conv(x, weight, plain_state, plan, residual=residual)
    assert_rows_without_adapter_equal(y, plain, ids)


def assert_rows_without_adapter_equal(got: Tensor, plain: Tensor, ids: list[int]) -> None:
    rows = [row for row, adapter in enumerate(ids) if adapter == -1]
    assert torch.equal(got[rows], plain[rows])


def test_deltas_of_several_experts_add_no_launch() -> None:
    x, weight, state, plan = conv_case([3, 1], torch.float32)
    delta = pending(expert_parts(CHANNELS), [0, 0, 0, 1])
    want_state = state.clone()
    with count_launches() as launches:
        y = short_conv(x.clone(), weight, state, plan, pending=(delta,))
    assert launches.total() == 1
    assert_close(y, short_conv_reference(x, weight, want_state, plan, pending=(delta,)))


def test_a_delta_of_a_part_of_the_channels_is_added_too() -> None:
    x, weight, state, plan = conv_case([3, 1], torch.float32)
    delta = pending([LoraPart(5, 16, site(8, 11))], [0, 0, 0, 1])
    want_state = state.clone()
    y = short_conv(x.clone(), weight, state, plan, pending=(delta,))
    assert_close(y, short_conv_reference(x, weight, want_state, plan, pending=(delta,)))
    assert_close(state, want_state)


# Prologue

SHAPE = HeadShape(num_heads=6, num_kv_heads=2, head_dim=24, d_rel=5)


def prologue_state(slots: int, dtype: torch.dtype) -> PrologueState:
    width = SHAPE.widths[1]
    states = [random(slots, 3, width, seed=seed, dtype=dtype) for seed in (0, 1)]
    caches = [random(9, 16, 2, 24, seed=seed, dtype=dtype) for seed in (5, 6)]
    return PrologueState(*states, *caches)


def prologue_weights(dtype: torch.dtype) -> PrologueWeights:
    width = SHAPE.widths[1]
    norms = [(1 + 0.3 * random(24, seed=seed)).to(dtype) for seed in (3, 4)]
    return PrologueWeights(random(4, width), random(4, width, seed=2), *norms, eps=1e-5)


def prologue_delta(sites: str, ids: list[int], dtype: torch.dtype) -> PendingDelta | None:
    parts = [
        LoraPart(start, start + width, site(8, width, dtype, (4, 7, 0)))
        for name, start, width in zip("qkvr", SHAPE.starts, SHAPE.widths, strict=True)
        if name in sites
    ]
    return pending(parts, ids, 2) if parts else None


@DTYPES
@pytest.mark.parametrize(
    ("sites", "lengths"),
    [("", [1] * 15), ("qkvr", [1] * 15), ("k", [14, 1, 1, 3]), ("qvr", [2, 1, 15])],
    ids=str,
)
def test_the_prologue_equals_its_reference_in_one_launch(
    sites: str, lengths: list[int], dtype: torch.dtype
) -> None:
    count, num_slots = sum(lengths), len(lengths)
    ids = adapter_of_token(lengths)
    projected = random(count, sum(SHAPE.widths), dtype=dtype)
    delta = prologue_delta(sites, ids, dtype)
    segments = Segments.from_lengths(lengths, DEVICE)
    plan = ConvPlan.make(segments, range(num_slots), range(num_slots))
    mapping = torch.randperm(9 * 16, generator=torch.Generator().manual_seed(1))[:count].to(DEVICE)
    got_state, want_state = prologue_state(num_slots, dtype), prologue_state(num_slots, dtype)
    rest = SHAPE, prologue_weights(dtype)
    with count_launches() as launches:
        q, r = qkvr_prologue(projected.clone(), delta, *rest, got_state, plan, mapping)
    assert launches.total() == 1
    want = qkvr_prologue_reference(projected, delta, *rest, want_state, plan, mapping)
    assert_close(q, want[0])
    assert_close(r, want[1])
    for name in ("k_conv", "v_conv", "key_cache", "value_cache"):
        assert_close(getattr(got_state, name), getattr(want_state, name))
    base_state = prologue_state(num_slots, dtype)
    base_q, base_r = qkvr_prologue(projected, None, *rest, base_state, plan, mapping)
    assert_rows_without_adapter_equal(q, base_q, ids)
    assert_rows_without_adapter_equal(r, base_r, ids)
    rows = got_state.key_cache.flatten(0, 1), base_state.key_cache.flatten(0, 1)
    assert_rows_without_adapter_equal(rows[0][mapping], rows[1][mapping], ids)


def test_a_delta_across_heads_of_q_and_k_is_added_before() -> None:
    projected, plan = random(3, sum(SHAPE.widths)), conv_case([3], torch.float32)[3]
    delta = pending([LoraPart(140, 150, site(8, 10))], [0, 0, 0])
    mapping = torch.tensor([4, 5, 6], device=DEVICE)
    got_state, want_state = prologue_state(2, torch.float32), prologue_state(2, torch.float32)
    rest = SHAPE, prologue_weights(torch.float32)
    q, _ = qkvr_prologue(projected.clone(), delta, *rest, got_state, plan, mapping)
    want, _ = qkvr_prologue_reference(projected, delta, *rest, want_state, plan, mapping)
    assert_close(q, want)
    assert_close(got_state.key_cache, want_state.key_cache)
