import pytest
import torch
from native_threads import num_threads
from op_cases import ADAPTER_MIXES, CPU, TOLERANCES, assert_close, gated, pair, randn
from torch import Tensor

from inkling_runtime.ops.lora_slots import GatedLora, LoraSlots
from inkling_runtime.ops.nvfp4 import Nvfp4Weight, nvfp4_reference
from inkling_runtime.ops.routed_experts import (
    MAX_NATIVE_ROUTES,
    routed_experts,
    routed_experts_reference,
)
from inkling_runtime.ops.shared_experts import (
    MAX_NATIVE_TOKENS,
    shared_experts,
    shared_experts_reference,
)
from inkling_runtime.ops.token_adapters import TokenAdapters

pytestmark = pytest.mark.usefixtures("native_kernels")
HIDDEN, WIDTH, EXPERTS, SHARED, TOP_K = 37, 21, 6, 3, 2
MIXES = pytest.mark.parametrize("ids", ADAPTER_MIXES.values(), ids=ADAPTER_MIXES)
DTYPES = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
LAYOUTS = pytest.mark.parametrize(
    ("a", "b"), [(1, 1), (1, None), (None, 1), (None, None)], ids=["one", "A", "B", "apart"]
)
"""Which factor is shared by all experts; None: each expert has its own."""


def routed_case(tokens: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Return x, w13, w2, expert ids (distinct per token) and weights."""
    return (
        randn(tokens, HIDDEN, dtype=dtype),
        randn(EXPERTS, 2 * WIDTH, HIDDEN, dtype=dtype) * 0.3,
        randn(EXPERTS, HIDDEN, WIDTH, dtype=dtype) * 0.3,
        randn(tokens, EXPERTS, seed=5).topk(TOP_K).indices,
        randn(tokens, TOP_K, seed=6).softmax(-1),
    )


def shared_case(tokens: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Return x, w13, w2 and gammas."""
    return (
        randn(tokens, HIDDEN, dtype=dtype),
        randn(SHARED, 2 * WIDTH, HIDDEN, dtype=dtype) * 0.3,
        randn(HIDDEN, SHARED * WIDTH, dtype=dtype) * 0.3,
        randn(tokens, SHARED, seed=7).softmax(-1),
    )


def layout(experts: int, a: int | None, b: int | None, rank: int = 5) -> GatedLora:
    """Return one adapter whose three sites share the same factors."""
    counts = (a or experts, b or experts)

    def site(in_features: int, out_features: int) -> LoraSlots:
        return LoraSlots([pair(in_features, out_features, rank, experts=counts)], CPU)

    return GatedLora(site(HIDDEN, WIDTH), site(HIDDEN, WIDTH), site(WIDTH, HIDDEN))


def packed(experts: int, rows: int, columns: int) -> Nvfp4Weight:
    generator = torch.Generator().manual_seed(rows)

    def bytes_(*shape: int, stop: int) -> Tensor:
        return torch.randint(stop, shape, generator=generator, dtype=torch.uint8)

    return Nvfp4Weight(
        bytes_(experts, rows, columns // 2, stop=256),
        bytes_(experts, rows, columns // 16, stop=0x50).view(torch.float8_e4m3fn),
        torch.rand(experts, generator=generator) * 0.1 + 0.02,
    )


@DTYPES
@MIXES
def test_routed_experts_equal_their_reference(ids: list[int], dtype: torch.dtype) -> None:
    case, adapters = routed_case(len(ids), dtype), TokenAdapters.from_ids(ids, CPU)
    lora = gated(HIDDEN, WIDTH, EXPERTS, dtype)
    y, pending = routed_experts(*case, lora, adapters)
    assert pending is None
    assert_close(y, routed_experts_reference(*case, lora, adapters))


@DTYPES
@MIXES
def test_shared_experts_equal_their_reference(ids: list[int], dtype: torch.dtype) -> None:
    case, adapters = shared_case(len(ids), dtype), TokenAdapters.from_ids(ids, CPU)
    lora = gated(HIDDEN, WIDTH, SHARED, dtype)
    y, pending = shared_experts(*case, lora, adapters)
    assert pending is None
    assert_close(y, shared_experts_reference(*case, lora, adapters))


@LAYOUTS
@pytest.mark.parametrize("sites", ["gate", "up", "down", "gate up", "gate up down"])
def test_the_delta_of_every_layout_and_site_equals_the_reference(
    sites: str, a: int | None, b: int | None
) -> None:
    adapters = TokenAdapters.from_ids([0, -1, 0, 0], CPU)
    for case, experts, op, reference in (
        (routed_case(4), EXPERTS, routed_experts, routed_experts_reference),
        (shared_case(4), SHARED, shared_experts, shared_experts_reference),
    ):
        whole = layout(experts, a, b)
        chosen = (
            getattr(whole, name) if name in sites.split() else None
            for name in ("gate", "up", "down")
        )
        lora = GatedLora(*chosen)
        got = op(*case, lora, adapters)[0] - op(*case, None, adapters)[0]
        want = reference(*case, lora, adapters) - reference(*case, None, adapters)
        assert want.abs().max() > 1e-2
        torch.testing.assert_close(got, want, atol=1e-5 * want.abs().max().item(), rtol=0)


@pytest.mark.parametrize("tokens", [1, 2, 5, 6, 7, 12, 13, 40])
@DTYPES
def test_any_number_of_routes_equals_the_reference(tokens: int, dtype: torch.dtype) -> None:
    case, adapters = routed_case(tokens, dtype), TokenAdapters.from_ids([-1] * tokens, CPU)
    y, _ = routed_experts(*case, None, adapters)
    assert_close(y, routed_experts_reference(*case, None, adapters))


def test_routes_that_all_go_to_one_expert_are_summed() -> None:
    x, w13, w2, ids, weights = routed_case(4)
    case = (x, w13, w2, torch.full_like(ids, 3), weights, gated(HIDDEN, WIDTH, EXPERTS, x.dtype))
    adapters = TokenAdapters.from_ids([0, 1, -1, 0], CPU)
    assert_close(routed_experts(*case, adapters)[0], routed_experts_reference(*case, adapters))


@DTYPES
def test_a_token_is_the_same_alone_and_in_any_batch(dtype: torch.dtype) -> None:
    ids = [1, -1, 0, 2, 0, 1, -1, 1, 0]
    for case, experts, op in (
        (routed_case(9, dtype), EXPERTS, routed_experts),
        (shared_case(9, dtype), SHARED, shared_experts),
    ):
        x, w13, w2, *routing = case
        lora = gated(HIDDEN, WIDTH, experts, dtype)
        y, _ = op(*case, lora, TokenAdapters.from_ids(ids, CPU))
        for t in range(9):
            alone = (x[t : t + 1], w13, w2, *(values[t : t + 1] for values in routing), lora)
            adapters = TokenAdapters.from_ids(ids[t : t + 1], CPU)
            assert torch.equal(op(*alone, adapters)[0], y[t : t + 1])


@DTYPES
@pytest.mark.parametrize("threads", [2, 3])
def test_the_number_of_threads_changes_no_bit(threads: int, dtype: torch.dtype) -> None:
    adapters = TokenAdapters.from_ids([0, 1, -1, 1, 0], CPU)
    for case, experts, op in (
        (routed_case(5, dtype), EXPERTS, routed_experts),
        (shared_case(5, dtype), SHARED, shared_experts),
    ):
        lora = gated(HIDDEN, WIDTH, experts, dtype)
        one, _ = op(*case, lora, adapters)
        with num_threads(threads):
            assert torch.equal(op(*case, lora, adapters)[0], one)


@DTYPES
def test_tokens_without_adapter_are_the_plain_sum_bit_for_bit(dtype: torch.dtype) -> None:
    ids = [-1, 0, 2, 1, -1, 0, 1]
    adapters = TokenAdapters.from_ids(ids, CPU)
    for case, experts, op in (
        (routed_case(7, dtype), EXPERTS, routed_experts),
        (shared_case(7, dtype), SHARED, shared_experts),
    ):
        adapted, _ = op(*case, gated(HIDDEN, WIDTH, experts, dtype), adapters)
        plain, _ = op(*case, None, adapters)
        same = [torch.equal(a, b) for a, b in zip(adapted, plain, strict=True)]
        assert same == [adapter not in (0, 1) for adapter in ids]


def test_views_of_wider_tensors_give_what_their_copies_give() -> None:
    x, w13, w2, ids, weights = routed_case(5)
    adapters = TokenAdapters.from_ids([-1] * 5, CPU)
    want, _ = routed_experts(x, w13, w2, ids, weights, None, adapters)
    views = (
        torch.stack([x, x], 2)[..., 0],
        torch.cat([ids, ids], 1)[:, :TOP_K],
        torch.cat([weights, weights], 1)[:, :TOP_K],
    )
    got, _ = routed_experts(views[0], w13, w2, *views[1:], None, adapters)
    assert torch.equal(got, want)
    got, _ = routed_experts(x, w13, w2, ids.T.contiguous().T, weights, None, adapters)
    assert torch.equal(got, want)


@MIXES
@DTYPES
def test_packed_weights_give_what_the_numbers_that_they_stand_for_give(
    dtype: torch.dtype, ids: list[int]
) -> None:
    hidden, width, tokens = 48, 32, len(ids)
    w13, w2 = packed(EXPERTS, 2 * width, hidden), packed(EXPERTS, hidden, width)
    routing = routed_case(tokens)[3:]
    case = (gated(hidden, width, EXPERTS, dtype), TokenAdapters.from_ids(ids, CPU))
    x = randn(tokens, hidden, dtype=dtype)
    y, _ = routed_experts(x, w13, w2, *routing, *case)
    numbers = (nvfp4_reference(w13), nvfp4_reference(w2))
    assert_close(y, routed_experts_reference(x, *numbers, *routing, *case))


@pytest.mark.parametrize("case", ["many routes", "other dtypes", "strided weight"])
def test_what_the_kernel_does_not_take_is_computed_all_the_same(case: str) -> None:
    tokens = MAX_NATIVE_ROUTES * EXPERTS // TOP_K + 1 if case == "many routes" else 3
    adapters = TokenAdapters.from_ids([0, 1] + [-1] * (tokens - 2), CPU)
    x, w13, w2, *routing = routed_case(tokens)
    if case == "other dtypes":
        x, w13, w2 = x.half(), w13.half(), w2.half()
    if case == "strided weight":
        w13 = torch.stack([w13, w13], 3)[..., 0]
    lora = gated(HIDDEN, WIDTH, EXPERTS, x.dtype)
    y, _ = routed_experts(x, w13, w2, *routing, lora, adapters)
    wanted = routed_experts_reference(x, w13, w2, *routing, lora, adapters)
    torch.testing.assert_close(y.float(), wanted.float(), atol=2e-2, rtol=1e-2)


def test_more_tokens_than_the_kernel_takes_are_shared_experts_all_the_same() -> None:
    tokens = MAX_NATIVE_TOKENS + 1
    adapters = TokenAdapters.from_ids([0, 1] + [-1] * (tokens - 2), CPU)
    case = (*shared_case(tokens), gated(HIDDEN, WIDTH, SHARED, torch.float32), adapters)
    torch.testing.assert_close(
        shared_experts(*case)[0], shared_experts_reference(*case), atol=1e-5, rtol=1e-5
    )


@DTYPES
def test_experts_that_are_not_held_here_add_nothing(dtype: torch.dtype) -> None:
    x, w13, w2, ids, weights = routed_case(5, dtype)
    ids = ids.clone()
    ids[0, 1] = ids[2, 0] = ids[3, 0] = ids[3, 1] = -1
    lora = gated(HIDDEN, WIDTH, EXPERTS, dtype)
    case = (x, w13, w2, ids, weights, lora, TokenAdapters.from_ids([0, 1, -1, 0, 1], CPU))
    y, _ = routed_experts(*case)
    assert_close(y, routed_experts_reference(*case))
    assert not y[3].any()
    none_here = (x, w13, w2, torch.full_like(ids, -1), weights, *case[5:])
    assert not routed_experts(*none_here)[0].any()
