"""The Triton kernels of the experts against their references: few routes without a sort, many in
tiles of one expert each, every layout of factors, mixes of adapters, and NVFP4."""

import pytest
import torch
from op_cases import ADAPTER_MIXES, assert_close, pair, randn
from torch import Tensor
from triton_device import DEVICE, MARKS

from inkling_runtime.ops.backend import Backend, use_backend
from inkling_runtime.ops.expert_shrink import expert_shrink, expert_shrink_reference
from inkling_runtime.ops.kernels import expert_shrink as shrink_kernels
from inkling_runtime.ops.kernels import routed_experts as route_kernels
from inkling_runtime.ops.kernels import shared_experts as shared_kernels
from inkling_runtime.ops.kernels.launch import count_launches
from inkling_runtime.ops.lora_expand import expand_pending_reference
from inkling_runtime.ops.lora_pair import LoraPair
from inkling_runtime.ops.lora_slots import GatedLora, LoraSlots
from inkling_runtime.ops.nvfp4 import Nvfp4Weight
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.routed_experts import routed_experts, routed_experts_reference
from inkling_runtime.ops.shared_experts import shared_experts, shared_experts_reference
from inkling_runtime.ops.token_adapters import TokenAdapters

pytestmark = MARKS

HIDDEN, WIDTH, EXPERTS, SHARED, TOP_K = 20, 19, 6, 3, 2
"""The widths do not fill their tiles."""
PACKED_HIDDEN, PACKED_WIDTH = 48, 32
MIXES = pytest.mark.parametrize("ids", ADAPTER_MIXES.values(), ids=ADAPTER_MIXES)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
TOLERANCES = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""By dtype, relative to the largest wanted value; the interpreter truncates to bf16."""


@pytest.fixture(params=["few", "many"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which kernels take the batch: those for few tokens, or those with tiles."""
    if request.param == "many":
        monkeypatch.setattr(route_kernels, "MOST_ROUTES", 0)
        monkeypatch.setattr(shared_kernels, "MOST_TOKENS", 0)
        monkeypatch.setattr(shrink_kernels, "MOST_TOKENS", 0)
    return request.param


def layouts(
    in_features: int, out_features: int, experts: int, dtype: torch.dtype, first: int
) -> LoraSlots:
    """Return an adapter per layout of factors, and one without the site.

    `first` turns the order, so that an adapter has other layouts in other sites.
    """
    numbers = [(1, experts), (experts, 1), (experts, experts), (1, 1)]
    ranks = (2, 5, 17, 3)
    pairs: list[LoraPair | None] = []
    for slot, rank in enumerate(ranks):
        one = pair(in_features, out_features, rank, dtype, numbers[(slot + first) % 4])
        pairs.append(LoraPair(one.a.to(DEVICE), one.b.to(DEVICE), 0.7 + slot))
    return LoraSlots([*pairs, None], DEVICE)


def gated(hidden: int, width: int, experts: int, dtype: torch.dtype) -> GatedLora:
    return GatedLora(
        gate=layouts(hidden, width, experts, dtype, 0),
        up=layouts(hidden, width, experts, dtype, 1),
        down=layouts(width, hidden, experts, dtype, 2),
    )


def routed_case(
    tokens: int, dtype: torch.dtype = torch.float32, hidden: int = HIDDEN, width: int = WIDTH
) -> tuple[Tensor, ...]:
    """Return x, w13, w2, expert ids (distinct per token) and weights."""
    case = (
        randn(tokens, hidden, dtype=dtype),
        randn(EXPERTS, 2 * width, hidden, dtype=dtype) * 0.2,
        randn(EXPERTS, hidden, width, dtype=dtype) * 0.2,
        randn(tokens, EXPERTS, seed=5).topk(TOP_K).indices,
        randn(tokens, TOP_K, seed=6).softmax(-1),
    )
    return tuple(tensor.to(DEVICE) for tensor in case)


def shared_case(tokens: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Return x, w13, w2 and gammas."""
    case = (
        randn(tokens, HIDDEN, dtype=dtype),
        randn(SHARED, 2 * WIDTH, HIDDEN, dtype=dtype) * 0.2,
        randn(HIDDEN, SHARED * WIDTH, dtype=dtype) * 0.2,
        randn(tokens, SHARED, seed=7).softmax(-1),
    )
    return tuple(tensor.to(DEVICE) for tensor in case)


def adapters_of(ids: list[int]) -> TokenAdapters:
    return TokenAdapters.from_ids(ids, DEVICE)


def completed(result: tuple[Tensor, PendingDelta | None]) -> Tensor:
    y, pending = result
    return expand_pending_reference(y, pending)


def assert_same_delta(got: Tensor, got_base: Tensor, want: Tensor, want_base: Tensor) -> None:
    """Both the outputs and what the adapters change must agree."""
    tolerance = TOLERANCES[got.dtype]
    assert got.dtype == want.dtype
    largest = want.float().abs().max().item()
    for one, other in ((got, want), (got.float() - got_base, want.float() - want_base)):
        torch.testing.assert_close(one.float(), other.float(), atol=2 * tolerance * largest, rtol=0)


@MIXES
def test_experts_equal_their_references(ids: list[int], size: str) -> None:
    routed, shared, adapters = routed_case(len(ids)), shared_case(len(ids)), adapters_of(ids)
    some = gated(HIDDEN, WIDTH, EXPERTS, torch.float32)
    others = gated(HIDDEN, WIDTH, SHARED, torch.float32)
    with use_backend(Backend.TRITON):
        got = completed(routed_experts(*routed, some, adapters))
        assert_close(got, routed_experts_reference(*routed, some, adapters))
        got = completed(shared_experts(*shared, others, adapters))
        assert_close(got, shared_experts_reference(*shared, others, adapters))


@DTYPES
def test_deltas_equal_those_of_the_references(dtype: torch.dtype, size: str) -> None:
    ids = [0, 3, -1, 1, 2]
    adapters = adapters_of(ids)
    for experts, case, run, reference in (
        (EXPERTS, routed_case(5, dtype), routed_experts, routed_experts_reference),
        (SHARED, shared_case(5, dtype), shared_experts, shared_experts_reference),
    ):
        lora = gated(HIDDEN, WIDTH, experts, dtype)
        with use_backend(Backend.TRITON):
            got, base = (completed(run(*case, some, adapters)) for some in (lora, None))
        want, want_base = (reference(*case, some, adapters) for some in (lora, None))
        assert_same_delta(got, base, want, want_base)


def test_one_launch_shrinks_for_routed_and_shared_experts(size: str) -> None:
    ids = [0, 3, -1, 2, 1, 4]
    (x, _, _, expert_ids, _), adapters = routed_case(len(ids)), adapters_of(ids)
    routed = gated(HIDDEN, WIDTH, EXPERTS, torch.float32)
    shared = gated(HIDDEN, WIDTH, SHARED, torch.float32)
    with use_backend(Backend.TRITON), count_launches() as launches:
        some, others = expert_shrink(x, expert_ids, routed, shared, SHARED, adapters)
    assert launches.total() == 1
    assert some is not None
    assert others is not None
    every = torch.arange(SHARED, device=DEVICE).expand(len(ids), SHARED)
    for slots, got, experts in (
        (routed.gate, some.gate, expert_ids),
        (routed.up, some.up, expert_ids),
        (shared.gate, others.gate, every),
        (shared.up, others.up, every),
    ):
        assert slots is not None
        assert got is not None
        want = expert_shrink_reference(x, experts, slots, adapters)
        for t, slot in enumerate(ids):
            if slot < 0 or (one := slots[slot]) is None:
                continue
            copies = 1 if len(one.a) == 1 else want.shape[1]
            assert_close(
                got.sum(0)[t, :copies, : one.rank], want[t, :copies, : one.rank].contiguous()
            )
            assert not got[:, t, :copies, one.rank :].any()


def test_experts_take_a_product_that_was_taken_ahead() -> None:
    ids = [1, -1, 0]
    routed, shared, adapters = routed_case(3), shared_case(3), adapters_of(ids)
    some = gated(HIDDEN, WIDTH, EXPERTS, torch.float32)
    others = gated(HIDDEN, WIDTH, SHARED, torch.float32)
    with use_backend(Backend.TRITON):
        ahead = expert_shrink(routed[0], routed[3], some, others, SHARED, adapters)
        with count_launches() as launches:
            got = routed_experts(*routed, some, adapters, ahead[0])
            got_shared = shared_experts(*shared, others, adapters, ahead[1])
        with count_launches() as without:
            routed_experts(*routed, None, adapters)
            shared_experts(*shared, None, adapters)
        assert launches == without
        assert_close(completed(got), routed_experts_reference(*routed, some, adapters))
        assert_close(completed(got_shared), shared_experts_reference(*shared, others, adapters))


@pytest.mark.parametrize("sites", [("gate",), ("up",), ("down",), ("gate", "down")], ids=str)
def test_a_site_that_no_adapter_has_gets_no_delta(sites: tuple[str, ...], size: str) -> None:
    ids = [0, 1, -1]
    adapters = adapters_of(ids)
    for experts, case, run, reference in (
        (EXPERTS, routed_case(3), routed_experts, routed_experts_reference),
        (SHARED, shared_case(3), shared_experts, shared_experts_reference),
    ):
        full = gated(HIDDEN, WIDTH, experts, torch.float32)
        some = {name: getattr(full, name) if name in sites else None for name in GATED}
        with use_backend(Backend.TRITON):
            got = completed(run(*case, GatedLora(**some), adapters))
        assert_close(got, reference(*case, GatedLora(**some), adapters))


GATED = ("gate", "up", "down")


def test_rows_without_an_adapter_keep_every_bit(size: str) -> None:
    ids = [1, -1, 0, -1, 2]
    routed, shared, adapters = routed_case(5), shared_case(5), adapters_of(ids)
    none = adapters_of([-1] * 5)
    rows = [1, 3]
    with use_backend(Backend.TRITON):
        lora = gated(HIDDEN, WIDTH, EXPERTS, torch.float32)
        got, _ = routed_experts(*routed, lora, adapters)
        assert torch.equal(got[rows], routed_experts(*routed, None, none)[0][rows])
        lora = gated(HIDDEN, WIDTH, SHARED, torch.float32)
        got, _ = shared_experts(*shared, lora, adapters)
        assert torch.equal(got[rows], shared_experts(*shared, None, none)[0][rows])


def test_routes_that_all_go_to_one_expert_are_summed(size: str) -> None:
    x, w13, w2, ids, weights = routed_case(19)
    ids = torch.full_like(ids, 3)
    adapters = adapters_of([0, 1, 2, 3, -1] * 3 + [0] * 4)
    case = (x, w13, w2, ids, weights, gated(HIDDEN, WIDTH, EXPERTS, torch.float32), adapters)
    with use_backend(Backend.TRITON):
        assert_close(completed(routed_experts(*case)), routed_experts_reference(*case))


def test_routes_of_experts_that_are_not_here_add_nothing(size: str) -> None:
    x, w13, w2, ids, weights = routed_case(4)
    lora, adapters = gated(HIDDEN, WIDTH, EXPERTS, torch.float32), adapters_of([0, 1, 2, -1])
    absent = torch.zeros_like(ids, dtype=torch.bool)
    absent[0, 1] = absent[1, 0] = absent[2] = True
    here = (x, w13, w2, ids.masked_fill(absent, -1), weights, lora, adapters)
    without = (x, w13, w2, ids, weights.masked_fill(absent, 0.0), lora, adapters)
    with use_backend(Backend.TRITON):
        assert_close(completed(routed_experts(*here)), routed_experts_reference(*without))


def packed(experts: int, rows: int, columns: int) -> Nvfp4Weight:
    generator = torch.Generator().manual_seed(rows)
    halves = torch.randint(256, (experts, rows, columns // 2), generator=generator)
    scales = torch.rand(experts, rows, columns // 16, generator=generator) * 40
    scales[:, 0] = 2.0**-8
    scales2 = torch.rand(experts, generator=generator) * 0.01 + 0.002
    return Nvfp4Weight(
        halves.to(torch.uint8).to(DEVICE),
        scales.to(torch.float8_e4m3fn).to(DEVICE),
        scales2.to(DEVICE),
    )


@DTYPES
def test_packed_weights_equal_what_they_stand_for(dtype: torch.dtype, size: str) -> None:
    ids = [0, -1, 2]
    x, _, _, expert_ids, weights = routed_case(len(ids), dtype, PACKED_HIDDEN, PACKED_WIDTH)
    w13 = packed(EXPERTS, 2 * PACKED_WIDTH, PACKED_HIDDEN)
    w2 = packed(EXPERTS, PACKED_HIDDEN, PACKED_WIDTH)
    lora, adapters = gated(PACKED_HIDDEN, PACKED_WIDTH, EXPERTS, dtype), adapters_of(ids)
    case = (x, w13, w2, expert_ids, weights)
    with use_backend(Backend.TRITON):
        got = completed(routed_experts(*case, lora, adapters))
        base = completed(routed_experts(*case, None, adapters))
    assert_same_delta(
        got,
        base,
        routed_experts_reference(*case, lora, adapters),
        routed_experts_reference(*case, None, adapters),
    )


@pytest.mark.parametrize("size", ["many"], indirect=True)
def test_more_tokens_than_a_tile_has(size: str) -> None:
    tokens = 71
    ids = [0] * 40 + [-1] * 9 + [1, 2, 3, 4] * 3 + [2] * 10
    adapters = adapters_of(ids)
    routed, shared = routed_case(tokens), shared_case(tokens)
    some = gated(HIDDEN, WIDTH, EXPERTS, torch.float32)
    others = gated(HIDDEN, WIDTH, SHARED, torch.float32)
    with use_backend(Backend.TRITON):
        got = completed(routed_experts(*routed, some, adapters))
        assert_close(got, routed_experts_reference(*routed, some, adapters))
        got = completed(shared_experts(*shared, others, adapters))
        assert_close(got, shared_experts_reference(*shared, others, adapters))
