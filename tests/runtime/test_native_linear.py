import pytest
import torch
from native_threads import num_threads
from op_cases import ADAPTER_MIXES, CPU, TOLERANCES, assert_close, pair, randn, slots
from torch import Tensor

from inkling_runtime.ops.lora_linear import (
    MAX_NATIVE_TOKENS,
    lora_linear,
    lora_linear_deferred,
    lora_linear_reference,
)
from inkling_runtime.ops.lora_slots import LoraPart, LoraSlots
from inkling_runtime.ops.token_adapters import TokenAdapters

pytestmark = pytest.mark.usefixtures("native_kernels")
MIXES = pytest.mark.parametrize("ids", ADAPTER_MIXES.values(), ids=ADAPTER_MIXES)
DTYPES = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)


def no_adapters(tokens: int) -> TokenAdapters:
    return TokenAdapters.from_ids([-1] * tokens, CPU)


def qk_parts(in_features: int, dtype: torch.dtype = torch.float32) -> list[LoraPart]:
    """Return two sites with a gap between them and another behind them, of 17 features."""
    first, second = slots(in_features, 6, dtype), slots(in_features, 5, dtype)
    return [LoraPart(1, 7, first), LoraPart(9, 14, second)]


def delta(x: Tensor, weight: Tensor, parts: list[LoraPart], adapters: TokenAdapters) -> Tensor:
    with_adapter = lora_linear(x, weight, parts, adapters)
    return with_adapter.float() - lora_linear(x, weight, [], adapters).float()


@DTYPES
@pytest.mark.parametrize("tokens", range(1, MAX_NATIVE_TOKENS + 1))
def test_any_number_of_tokens_equals_the_reference(tokens: int, dtype: torch.dtype) -> None:
    x, weight = randn(tokens, 50, dtype=dtype), randn(13, 50, dtype=dtype)
    case = (x, weight, [], no_adapters(tokens))
    assert_close(lora_linear(*case), lora_linear_reference(*case))


@DTYPES
@pytest.mark.parametrize("in_features", [1, 7, 8, 9, 15, 16, 17, 24, 31, 40, 64])
@pytest.mark.parametrize("out_features", [1, 3])
def test_any_width_equals_the_reference(
    out_features: int, in_features: int, dtype: torch.dtype
) -> None:
    x, weight = randn(2, in_features, dtype=dtype), randn(out_features, in_features, dtype=dtype)
    case = (x, weight, [], no_adapters(2))
    assert_close(lora_linear(*case), lora_linear_reference(*case))


@MIXES
@pytest.mark.parametrize("in_features", [12, 37])
def test_deltas_equal_those_of_the_reference(ids: list[int], in_features: int) -> None:
    x, weight = randn(len(ids), in_features), randn(17, in_features) * 0.3
    parts, adapters = qk_parts(in_features), TokenAdapters.from_ids(ids, CPU)
    wanted = lora_linear_reference(x, weight, parts, adapters)
    wanted -= lora_linear_reference(x, weight, [], adapters)
    torch.testing.assert_close(delta(x, weight, parts, adapters), wanted, atol=1e-5, rtol=1e-5)


@MIXES
def test_bf16_with_deltas_equals_the_reference(ids: list[int]) -> None:
    x, weight = randn(len(ids), 37, dtype=torch.bfloat16), randn(17, 37, dtype=torch.bfloat16)
    case = (x, weight, qk_parts(37, torch.bfloat16), TokenAdapters.from_ids(ids, CPU))
    assert_close(lora_linear(*case), lora_linear_reference(*case))


@DTYPES
@pytest.mark.parametrize("rank", [1, 7, 8, 15, 16, 17, 24, 33])
def test_any_rank_gives_its_delta(rank: int, dtype: torch.dtype) -> None:
    x, weight = randn(3, 20, dtype=dtype), torch.zeros(9, 20, dtype=dtype)
    parts = [LoraPart(0, 9, LoraSlots([pair(20, 9, rank, dtype)], CPU))]
    case = (x, weight, parts, TokenAdapters.from_ids([0, -1, 0], CPU))
    assert_close(lora_linear(*case), lora_linear_reference(*case))


@DTYPES
@MIXES
def test_rows_without_adapter_are_the_plain_product_bit_for_bit(
    ids: list[int], dtype: torch.dtype
) -> None:
    x, weight = randn(len(ids), 37, dtype=dtype), randn(17, 37, dtype=dtype)
    parts, adapters = qk_parts(37, dtype), TokenAdapters.from_ids(ids, CPU)
    differs = delta(x, weight, parts, adapters).any(1)
    assert differs.tolist() == [adapter in (0, 1) for adapter in ids]


@DTYPES
def test_a_row_is_the_same_alone_and_in_any_batch(dtype: torch.dtype) -> None:
    ids = [1, -1, 0, 2, 0, 1, -1, 1, 0, 0, 2, 1, 1]
    x, weight, parts = randn(13, 53, dtype=dtype), randn(17, 53, dtype=dtype), qk_parts(53, dtype)
    for size in range(1, 14):
        adapters = TokenAdapters.from_ids(ids[:size], CPU)
        y = lora_linear(x[:size], weight, parts, adapters)
        last = TokenAdapters.from_ids(ids[size - 1 : size], CPU)
        assert torch.equal(y[-1:], lora_linear(x[size - 1 : size], weight, parts, last))


@DTYPES
@pytest.mark.parametrize("threads", [2, 3])
def test_the_number_of_threads_changes_no_bit(threads: int, dtype: torch.dtype) -> None:
    x, weight, parts = randn(5, 53, dtype=dtype), randn(17, 53, dtype=dtype), qk_parts(53, dtype)
    case = (x, weight, parts, TokenAdapters.from_ids([0, 1, -1, 1, 0], CPU))
    alone = lora_linear(*case)
    with num_threads(threads):
        assert torch.equal(lora_linear(*case), alone)


def test_strided_inputs_give_what_their_copies_give() -> None:
    wide, weight, adapters = randn(6, 40), randn(17, 20), TokenAdapters.from_ids([0] * 3, CPU)
    parts = qk_parts(20)
    for x in (wide[::2, 5:25], wide[:3, ::2], wide.T[:20].T[::2], wide[:1, :20].expand(3, 20)):
        want = lora_linear(x.clone(memory_format=torch.contiguous_format), weight, parts, adapters)
        assert torch.equal(lora_linear(x, weight, parts, adapters), want)


def test_rounding_is_to_the_nearest_even() -> None:
    weight = torch.eye(2, dtype=torch.bfloat16)
    x = torch.tensor([[1.0, 0.0]], dtype=torch.bfloat16)
    factors = pair(2, 2, 1, torch.bfloat16)
    factors.a.fill_(1)
    factors.b.fill_(1)
    for scaling in (2.0**-8, 3 * 2.0**-8, 2.0**-8 + 2.0**-16, 2.0**-9):
        slots_ = LoraSlots([type(factors)(factors.a, factors.b, scaling)], CPU)
        y = lora_linear(x, weight, [LoraPart(0, 2, slots_)], TokenAdapters.from_ids([0], CPU))
        assert y[0, 0] == torch.tensor(1 + scaling).bfloat16()


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
@DTYPES
def test_infinities_and_nan_come_through(value: float, dtype: torch.dtype) -> None:
    x = torch.tensor([[value], [1.0]], dtype=dtype)
    y = lora_linear(x, torch.ones(1, 1, dtype=dtype), [], no_adapters(2))
    assert torch.equal(y.isnan(), x.isnan())
    assert torch.equal(y.nan_to_num(), x.nan_to_num())


@pytest.mark.parametrize("case", ["many tokens", "no tokens", "other dtypes", "strided weight"])
def test_what_the_kernel_does_not_take_is_computed_all_the_same(case: str) -> None:
    tokens = {"many tokens": MAX_NATIVE_TOKENS + 1, "no tokens": 0}.get(case, 3)
    dtype = torch.float16 if case == "other dtypes" else torch.float32
    x, weight = randn(tokens, 12, dtype=dtype), randn(17, 24, dtype=dtype)
    weight = weight[:, ::2] if case == "strided weight" else weight[:, :12].contiguous()
    adapters = TokenAdapters.from_ids([0, 1, -1][:tokens] + [-1] * (tokens - 3), CPU)
    y, pending = lora_linear_deferred(x, weight, qk_parts(12, dtype), adapters)
    wanted = lora_linear_reference(x, weight, qk_parts(12, dtype), adapters)
    assert pending is None
    torch.testing.assert_close(y.float(), wanted.float(), atol=2e-2, rtol=1e-3)


def test_factors_of_another_dtype_than_the_inputs_are_read_as_what_they_are() -> None:
    x, weight = randn(3, 12, dtype=torch.bfloat16), randn(17, 12, dtype=torch.bfloat16)
    case = (x, weight, qk_parts(12), TokenAdapters.from_ids([0, 1, -1], CPU))
    assert_close(lora_linear(*case), lora_linear_reference(*case))
