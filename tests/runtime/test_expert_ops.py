import pytest
import torch
from op_cases import ADAPTER_MIXES, CPU, TOLERANCES, assert_close, gated, randn
from torch import Tensor

from inkling_runtime.ops.lora_expand import expand_pending
from inkling_runtime.ops.lora_slots import GatedLora
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.routed_experts import routed_experts, routed_experts_reference
from inkling_runtime.ops.shared_experts import shared_experts, shared_experts_reference
from inkling_runtime.ops.token_adapters import TokenAdapters

HIDDEN, WIDTH, EXPERTS, SHARED, TOP_K = 12, 5, 6, 3, 2
MIXES = pytest.mark.parametrize("ids", ADAPTER_MIXES.values(), ids=ADAPTER_MIXES)
DTYPES = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)


def routed_case(tokens: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Return x, w13, w2, expert ids (distinct per token) and weights."""
    ids = randn(tokens, EXPERTS, seed=5).topk(TOP_K).indices
    return (
        randn(tokens, HIDDEN, dtype=dtype),
        randn(EXPERTS, 2 * WIDTH, HIDDEN, dtype=dtype) * 0.3,
        randn(EXPERTS, HIDDEN, WIDTH, dtype=dtype) * 0.3,
        ids,
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


def completed(result: tuple[Tensor, PendingDelta | None]) -> Tensor:
    """Return the output with its pending delta."""
    return expand_pending(*result)


@DTYPES
@MIXES
def test_routed_experts_equal_their_reference(ids: list[int], dtype: torch.dtype) -> None:
    case = routed_case(len(ids), dtype)
    lora, adapters = gated(HIDDEN, WIDTH, EXPERTS, dtype), TokenAdapters.from_ids(ids, CPU)
    assert_close(
        completed(routed_experts(*case, lora, adapters)),
        routed_experts_reference(*case, lora, adapters),
    )


@DTYPES
@MIXES
def test_shared_experts_equal_their_reference(ids: list[int], dtype: torch.dtype) -> None:
    case = shared_case(len(ids), dtype)
    lora, adapters = gated(HIDDEN, WIDTH, SHARED, dtype), TokenAdapters.from_ids(ids, CPU)
    assert_close(
        completed(shared_experts(*case, lora, adapters)),
        shared_experts_reference(*case, lora, adapters),
    )


@pytest.mark.parametrize("tokens", [1, 133])
def test_without_adapters_both_equal_their_references(tokens: int) -> None:
    adapters = TokenAdapters.from_ids([-1] * tokens, CPU)
    routed, shared = routed_case(tokens), shared_case(tokens)
    assert_close(
        completed(routed_experts(*routed, None, adapters)),
        routed_experts_reference(*routed, None, adapters),
    )
    assert_close(
        completed(shared_experts(*shared, None, adapters)),
        shared_experts_reference(*shared, None, adapters),
    )


def test_routes_that_all_go_to_one_expert_are_summed() -> None:
    x, w13, w2, ids, weights = routed_case(4)
    ids = torch.full_like(ids, 3)
    lora, adapters = gated(HIDDEN, WIDTH, EXPERTS, torch.float32), [0, 1, -1, 0]
    case = (x, w13, w2, ids, weights, lora, TokenAdapters.from_ids(adapters, CPU))
    assert_close(completed(routed_experts(*case)), routed_experts_reference(*case))


def test_loaded_but_unused_adapters_change_no_bit() -> None:
    adapters = TokenAdapters.from_ids([-1] * 7, CPU)
    routed, shared = routed_case(7), shared_case(7)
    some, none = gated(HIDDEN, WIDTH, EXPERTS, torch.float32), None
    assert torch.equal(
        completed(routed_experts(*routed, some, adapters)),
        completed(routed_experts(*routed, none, adapters)),
    )
    some = gated(HIDDEN, WIDTH, SHARED, torch.float32)
    assert torch.equal(
        completed(shared_experts(*shared, some, adapters)),
        completed(shared_experts(*shared, none, adapters)),
    )


def test_a_site_that_no_adapter_has_gets_no_delta() -> None:
    ids = [0, 1, 1]
    adapters = TokenAdapters.from_ids(ids, CPU)
    full = gated(HIDDEN, WIDTH, EXPERTS, torch.float32)
    only_down = GatedLora(None, None, full.down)
    case = (*routed_case(3), only_down, adapters)
    assert_close(completed(routed_experts(*case)), routed_experts_reference(*case))


@MIXES
def test_routes_to_experts_that_are_not_held_add_nothing(ids: list[int]) -> None:
    x, w13, w2, expert_ids, weights = routed_case(len(ids))
    expert_ids = expert_ids.masked_fill(expert_ids < EXPERTS // 2, -1)
    lora, adapters = gated(HIDDEN, WIDTH, EXPERTS, torch.float32), TokenAdapters.from_ids(ids, CPU)
    case = (x, w13, w2, expert_ids, weights, lora, adapters)
    got = completed(routed_experts(*case))
    assert_close(got, routed_experts_reference(*case))
    assert not got[(expert_ids < 0).all(1)].any()
