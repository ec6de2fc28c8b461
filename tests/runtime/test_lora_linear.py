import pytest
import torch
from op_cases import ADAPTER_MIXES, CPU, TOLERANCES, assert_close, pair, randn, slots

from inkling_runtime.ops.lora_linear import lora_linear, lora_linear_reference
from inkling_runtime.ops.lora_slots import LoraPart, LoraSlots
from inkling_runtime.ops.token_adapters import TokenAdapters

MIXES = pytest.mark.parametrize("ids", ADAPTER_MIXES.values(), ids=ADAPTER_MIXES)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@MIXES
def test_linear_with_deltas_equals_its_reference(ids: list[int], dtype: torch.dtype) -> None:
    x, weight = randn(len(ids), 12, dtype=dtype), randn(17, 12, dtype=dtype) * 0.3
    parts = [LoraPart(0, 9, slots(12, 9, dtype)), LoraPart(11, 17, slots(12, 6, dtype))]
    adapters = TokenAdapters.from_ids(ids, CPU)
    assert_close(
        lora_linear(x, weight, parts, adapters), lora_linear_reference(x, weight, parts, adapters)
    )


@MIXES
def test_rows_without_adapter_are_the_plain_product_bit_for_bit(ids: list[int]) -> None:
    x, weight = randn(len(ids), 12), randn(9, 12)
    adapters = TokenAdapters.from_ids(ids, CPU)
    y = lora_linear(x, weight, [LoraPart(0, 9, slots(12, 9))], adapters)
    plain = lora_linear(x, weight, [], TokenAdapters.from_ids([-1] * len(ids), CPU))
    for row, adapter in enumerate(ids):
        assert torch.equal(y[row], plain[row]) == (adapter in (-1, 2))


def test_the_delta_is_scaling_times_b_times_a() -> None:
    x, weight, factors = randn(3, 12), randn(9, 12), pair(12, 9, 4)
    adapters = TokenAdapters.from_ids([0, 0, 0], CPU)
    y = lora_linear(x, weight, [LoraPart(0, 9, LoraSlots([factors], CPU))], adapters)
    merged = weight + factors.scaling * factors.b @ factors.a
    assert_close(y, x @ merged.T)


def test_groups_are_ascending_and_neighbours_are_slices() -> None:
    adapters = TokenAdapters.from_ids([3, -1, 0, 0, 3, -1], CPU)
    (first, first_rows), (second, second_rows) = adapters.groups
    assert (first, first_rows) == (0, slice(2, 4))
    assert second == 3
    assert second_rows.tolist() == [0, 4]
    assert adapters.ids.tolist() == [3, -1, 0, 0, 3, -1]
