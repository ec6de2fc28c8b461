"""What the tests of the ops share: tolerances by dtype, random tensors, adapters per token."""

from collections.abc import Sequence

import torch
from torch import Tensor

from inkling_runtime.ops.lora_pair import LoraPair
from inkling_runtime.ops.lora_slots import GatedLora, LoraSlots

TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 1.5e-2}
"""By dtype, relative to the largest wanted value."""
KERNEL_TOLERANCES = {**TOLERANCES, torch.float16: 2e-3}
"""Triton's interpreter has no bf16 arithmetic of its own, so fp16 stands in for narrow dtypes."""
CPU = torch.device("cpu")

ADAPTER_MIXES = {
    "none": [-1] * 7,
    "one": [0] * 7,
    "distinct": [0, 1, 2, 0, 1, 2, 0],
    "some": [-1, 1, 1, -1, 0, 2, -1],
    "skewed": [2, 2, 2, 2, 2, 2, 0],
    "single token": [1],
}


def assert_close(got: Tensor, want: Tensor, roundings: int = 1) -> None:
    assert got.dtype == want.dtype
    largest = want.abs().max().item() if want.numel() else 0.0
    tolerance = roundings * KERNEL_TOLERANCES[want.dtype] * largest
    torch.testing.assert_close(got, want, atol=tolerance, rtol=0)


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def pair(
    in_features: int,
    out_features: int,
    rank: int,
    dtype: torch.dtype = torch.float32,
    experts: tuple[int, int] | None = None,
) -> LoraPair:
    """Return random factors; `experts` are the numbers of A and of B."""
    a_experts, b_experts = ((), ()) if experts is None else ((experts[0],), (experts[1],))
    a = randn(*a_experts, rank, in_features, seed=rank, dtype=dtype) * in_features**-0.5
    b = randn(*b_experts, out_features, rank, seed=rank + 1, dtype=dtype) * rank**-0.5
    return LoraPair(a, b, 0.7 * rank)


def slots(
    in_features: int,
    out_features: int,
    dtype: torch.dtype = torch.float32,
    experts: Sequence[tuple[int, int] | None] = (None, None),
) -> LoraSlots:
    """Return three adapters: ranks 2 and 5, and one that does not have the site."""
    first, second = experts
    return LoraSlots(
        [
            pair(in_features, out_features, 2, dtype, first),
            pair(in_features, out_features, 5, dtype, second),
            None,
        ],
        CPU,
    )


def gated(hidden_size: int, width: int, experts: int, dtype: torch.dtype) -> GatedLora:
    """Return adapters of an MLP with experts: one shared-outer, one with all factors apart."""
    all_, outer_a, outer_b = (experts, experts), (1, experts), (experts, 1)
    return GatedLora(
        gate=slots(hidden_size, width, dtype, (outer_a, all_)),
        up=slots(hidden_size, width, dtype, (outer_b, outer_a)),
        down=slots(width, hidden_size, dtype, (outer_b, all_)),
    )
