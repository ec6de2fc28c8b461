from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from op_cases import CPU, TOLERANCES, assert_close, randn
from torch import Tensor

from inkling_runtime.ops.conv_plan import ConvPlan
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
from inkling_runtime.ops.router import MAX_NATIVE_TOKENS, route_tokens, route_tokens_reference
from inkling_runtime.ops.segments import Segments
from inkling_runtime.ops.short_conv import short_conv, short_conv_reference

pytestmark = pytest.mark.usefixtures("native_kernels")
DTYPES = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


def assert_same_for_any_threads(compute: Callable[[], tuple[Tensor, ...]]) -> None:
    """Assert that one, two and three threads give the same bits."""
    with threads(1):
        want = compute()
    for count in (2, 3):
        with threads(count):
            assert all(torch.equal(g, w) for g, w in zip(compute(), want, strict=True))


@DTYPES
@pytest.mark.parametrize("size", [1, 7, 8, 13, 24, 67, 512])
def test_norms_of_any_width_equal_their_references(size: int, dtype: torch.dtype) -> None:
    x, residual = 3 * randn(5, size, dtype=dtype), randn(5, size, seed=1, dtype=dtype)
    weight = (1 + 0.3 * randn(size)).to(dtype)
    assert_close(rms_norm(x, weight, 1e-5), rms_norm_reference(x, weight, 1e-5))
    got = add_rms_norm(x, residual, weight, 1e-5)
    want = add_rms_norm_reference(x, residual, weight, 1e-5)
    assert_close(got[0], want[0])
    assert torch.equal(got[1], want[1])


@DTYPES
def test_norms_of_views_equal_those_of_their_copies(dtype: torch.dtype) -> None:
    x, weight = randn(24, 9, dtype=dtype).T, randn(24, dtype=dtype)
    want = rms_norm(x.contiguous(), weight, 1e-5)
    assert torch.equal(rms_norm(x, weight, 1e-5), want)


@DTYPES
def test_a_row_is_normed_the_same_alone_and_by_any_number_of_threads(dtype: torch.dtype) -> None:
    x, weight = randn(41, 2051, dtype=dtype), randn(2051, dtype=dtype)
    assert_same_for_any_threads(lambda: (rms_norm(x, weight, 1e-5),))
    assert torch.equal(rms_norm(x, weight, 1e-5)[7:8], rms_norm(x[7:8], weight, 1e-5))


@DTYPES
@pytest.mark.parametrize("channels", [1, 6, 13, 72])
@pytest.mark.parametrize("num_taps", [1, 2, 4])
@pytest.mark.parametrize("lengths", [[1], [9], [1, 1, 1], [5, 1, 2, 3]], ids=str)
def test_convolutions_and_states_equal_the_reference(
    lengths: list[int], num_taps: int, channels: int, dtype: torch.dtype
) -> None:
    segments = Segments.from_lengths(lengths, CPU)
    x = randn(sum(lengths), channels + 3, dtype=dtype)[:, 2:-1]
    residual = randn(sum(lengths), channels, seed=1, dtype=dtype)
    weight, state = randn(num_taps, channels), randn(9, num_taps - 1, channels, dtype=dtype)
    want_state, count = state.clone(), len(lengths)
    # Sequences read states that others write, and one state lies within a chunk.
    points = [(8, lengths.index(max(lengths)), max(lengths) // 2 + 1)] if max(lengths) > 1 else []
    plan = ConvPlan.make(segments, [4, 0, 6, 2][:count], [0, 4, 3, 6][:count], points)
    got = short_conv(x, weight, state, plan, residual=residual)
    assert_close(got, short_conv_reference(x, weight, want_state, plan, residual=residual))
    assert torch.equal(state, want_state)


@DTYPES
def test_a_sequence_is_convolved_the_same_alone_in_pieces_and_by_any_threads(
    dtype: torch.dtype,
) -> None:
    x, weight = randn(190, 205, dtype=dtype), randn(4, 205)

    def run(part: Tensor, lengths: list[int], state: Tensor, slots: list[int]) -> Tensor:
        segments = Segments.from_lengths(lengths, CPU)
        return short_conv(part, weight, state, ConvPlan.make(segments, slots, slots))

    def compute() -> tuple[Tensor, Tensor]:
        state = torch.zeros(2, 3, 205, dtype=dtype)
        return run(x, [60, 130], state, [0, 1]), state

    assert_same_for_any_threads(compute)
    whole, state = compute()
    single = torch.zeros(2, 3, 205, dtype=dtype)
    pieces = [run(piece, [len(piece)], single, [1]) for piece in x[60:].split([1, 2, 50, 77])]
    assert torch.equal(torch.cat(pieces), whole[60:])
    assert torch.equal(single[1], state[1])


def prologue_case(
    shape: HeadShape, tokens: int, dtype: torch.dtype
) -> tuple[Tensor, PrologueWeights, Callable[[], PrologueState], Tensor]:
    width, dim, heads = shape.widths[1], shape.head_dim, shape.num_kv_heads
    norms = [(1 + 0.3 * randn(dim, seed=seed)).to(dtype) for seed in (3, 4)]
    weights = PrologueWeights(randn(4, width), randn(4, width, seed=2), *norms, eps=1e-5)

    def state() -> PrologueState:
        blocks = tokens // 4 + 2
        caches = [randn(blocks, 4, heads, dim, seed=seed, dtype=dtype) for seed in (5, 6)]
        convs = [randn(9, 3, width, seed=seed, dtype=dtype) for seed in (7, 8)]
        return PrologueState(*convs, *caches)

    order = torch.randperm(tokens + 4, generator=torch.Generator().manual_seed(1))
    return randn(tokens, sum(shape.widths), dtype=dtype), weights, state, order[:tokens]


STATES = ("k_conv", "v_conv", "key_cache", "value_cache")


@DTYPES
@pytest.mark.parametrize(
    "shape", [HeadShape(6, 2, 8, 3), HeadShape(4, 1, 13, 5), HeadShape(3, 3, 20, 1)], ids=str
)
@pytest.mark.parametrize("lengths", [[1], [7], [1, 1, 1], [4, 1, 3]], ids=str)
def test_the_prologue_of_any_shape_equals_the_reference(
    lengths: list[int], shape: HeadShape, dtype: torch.dtype
) -> None:
    projected, weights, state, mapping = prologue_case(shape, sum(lengths), dtype)
    count = len(lengths)
    plan = ConvPlan.make(Segments.from_lengths(lengths, CPU), [1, 0, 5][:count], [1, 7, 5][:count])
    got_state, want_state = state(), state()
    got = qkvr_prologue(projected, None, shape, weights, got_state, plan, mapping)
    want = qkvr_prologue_reference(projected, None, shape, weights, want_state, plan, mapping)
    assert_close(got[0], want[0])
    assert torch.equal(got[1], want[1])
    for name in STATES:
        assert_close(getattr(got_state, name), getattr(want_state, name))


@DTYPES
def test_the_prologue_is_the_same_alone_and_by_any_number_of_threads(dtype: torch.dtype) -> None:
    shape = HeadShape(6, 2, 40, 3)
    projected, weights, state, mapping = prologue_case(shape, 130, dtype)

    def compute() -> tuple[Tensor, ...]:
        plan, new = ConvPlan.make(Segments.from_lengths([90, 40], CPU), [1, 0], [1, 7]), state()
        q, r = qkvr_prologue(projected, None, shape, weights, new, plan, mapping)
        return q, r, *(getattr(new, name) for name in STATES)

    assert_same_for_any_threads(compute)
    q, r, k_conv, _, keys, _ = compute()
    alone, plan = state(), ConvPlan.make(Segments.from_lengths([40], CPU), [0], [7])
    own_q, own_r = qkvr_prologue(projected[90:], None, shape, weights, alone, plan, mapping[90:])
    assert torch.equal(own_q, q[90:])
    assert torch.equal(own_r, r[90:])
    assert torch.equal(alone.k_conv[7], k_conv[7])
    rows = mapping[90:]
    assert torch.equal(alone.key_cache.flatten(0, 1)[rows], keys.flatten(0, 1)[rows])


@DTYPES
@pytest.mark.parametrize("hidden", [1, 10, 37])
@pytest.mark.parametrize(("experts", "shared", "top_k"), [(7, 2, 3), (8, 1, 8), (21, 3, 1)])
@pytest.mark.parametrize("tokens", [1, 9, MAX_NATIVE_TOKENS + 3])
def test_routes_equal_the_reference(
    tokens: int, experts: int, shared: int, top_k: int, hidden: int, dtype: torch.dtype
) -> None:
    x = randn(hidden, tokens, dtype=dtype).T
    weight, bias = randn(experts + shared, hidden), 0.3 * randn(experts)
    got = route_tokens(x, weight, bias, top_k, 1.7)
    want = route_tokens_reference(x, weight, bias, top_k, 1.7)
    assert torch.equal(got[0], want[0])
    assert_close(got[1], want[1])
    assert_close(got[2], want[2])


def test_equal_scores_go_to_the_smaller_ids_in_order() -> None:
    bias = torch.tensor([0.0, 2.0, 1.0, 2.0, 1.0, 0.0, 2.0, 1.0, 1.0])
    ids, _, _ = route_tokens(randn(3, 10), torch.zeros(11, 10), bias, 5, 1.0)
    assert ids.tolist() == [[1, 3, 6, 2, 4]] * 3


def test_routes_where_every_sigmoid_vanishes_or_saturates_have_weights() -> None:
    for value in (-30.0, 30.0):
        _, weights, gammas = route_tokens(
            torch.ones(1, 10), torch.full((9, 10), value), torch.zeros(7), 2, 1.0
        )
        assert_close(torch.cat([weights, gammas], 1), torch.full((1, 4), 0.25))


@DTYPES
def test_a_token_is_routed_the_same_alone_and_by_any_number_of_threads(dtype: torch.dtype) -> None:
    x = randn(MAX_NATIVE_TOKENS, 230, dtype=dtype)
    weight, bias = randn(45, 230), randn(41)
    assert_same_for_any_threads(lambda: route_tokens(x, weight, bias, 6, 1.3))
    together = route_tokens(x, weight, bias, 6, 1.3)
    for t in (0, 7, 15):
        alone = route_tokens(x[t : t + 1], weight, bias, 6, 1.3)
        assert all(torch.equal(a, b[t : t + 1]) for a, b in zip(alone, together, strict=True))
