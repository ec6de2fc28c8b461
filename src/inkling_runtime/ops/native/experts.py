"""The call of the kernel behind `routed_experts` and `shared_experts`.

To the kernel both are the same: shared experts are those that every token is routed to, with the
gammas as weights. Multiplying a route's output by its weight or its activation by it is the same
sum.
"""

import torch
from torch import Tensor

from inkling_runtime.ops.lora_slots import GatedLora
from inkling_runtime.ops.native import arguments
from inkling_runtime.ops.nvfp4 import ExpertWeights, Nvfp4Weight
from inkling_runtime.ops.token_adapters import TokenAdapters


def can_take(x: Tensor, weights: tuple[ExpertWeights, ...], lora: GatedLora | None) -> bool:
    """Return whether the kernel reads inputs, weights and factors of these dtypes and layouts."""
    return (
        arguments.has_kernels(x.dtype)
        and x.shape[0] > 0
        and all(_is_readable(weight, x.dtype) for weight in weights)
        and (lora is None or arguments.are_readable((lora.gate, lora.up, lora.down), x.dtype))
    )


def _is_readable(weight: ExpertWeights, dtype: torch.dtype) -> bool:
    if isinstance(weight, Nvfp4Weight):
        return True
    return weight.dtype == dtype and weight.is_contiguous()


def run_experts(
    x: Tensor,
    w13: ExpertWeights,
    w2: ExpertWeights,
    w2_strides: tuple[int, int],
    expert_ids: Tensor | None,
    expert_weights: Tensor,
    lora: GatedLora | None,
    adapters: TokenAdapters,
) -> Tensor:
    """Return the weighted sum of every token's experts, [T, H].

    Args:
        x: [T, H].
        w13: [E, 2F, H].
        w2: W2 of all experts, in any layout with contiguous columns if it is plain.
        w2_strides: elements from one expert of w2 to the next, and from row to row.
        expert_ids: [T, K] int64; None: experts 0 to K-1, for every token.
        expert_weights: [T, K] fp32.
        lora: the slots of the three sites; None: no deltas.
        adapters: the adapter of each token.
    """
    x, expert_weights = arguments.rows(x), arguments.rows(expert_weights)
    expert_ids = None if expert_ids is None else arguments.rows(expert_ids)
    num_tokens, hidden_size = x.shape
    y = x.new_empty(num_tokens, hidden_size)
    sites = lora.numbers if lora is not None and adapters.groups else None
    arguments.kernel("experts", x.dtype)(
        x.data_ptr(),
        x.stride(0),
        *_addresses(w13),
        *_addresses(w2),
        *w2_strides,
        hidden_size,
        w13.shape[1] // 2,
        None if expert_ids is None else expert_ids.data_ptr(),
        0 if expert_ids is None else expert_ids.stride(0),
        expert_weights.data_ptr(),
        expert_weights.stride(0),
        num_tokens,
        expert_weights.shape[1],
        None if sites is None else arguments.address(sites),
        adapters.ids.data_ptr(),
        y.data_ptr(),
        torch.get_num_threads(),
    )
    return y


def _addresses(weight: ExpertWeights) -> tuple[int, int | None, int | None]:
    """Return where the numbers and, if they are packed, both kinds of scales are."""
    if isinstance(weight, Nvfp4Weight):
        return weight.packed.data_ptr(), weight.scales.data_ptr(), weight.scales2.data_ptr()
    return weight.data_ptr(), None, None
