"""The plain linear map by torch, in the way that is fast on the machine at hand.

A CPU without bf16 instructions makes torch's bf16 product seven times as slow as its fp32 product.
So there the weight is converted block by block, which costs about as much as reading it.
"""

import torch
from torch import Tensor
from torch.nn import functional

from inkling_runtime.ops.native.cpu import multiplies_bf16

_BLOCK = 1 << 18
"""Numbers of a weight that are fp32 at a time: they stay in the second cache."""
_MIN_TOKENS = 4
"""With fewer tokens the conversion costs more than the product."""


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Return weight · x, summed in fp32.

    Args:
        x: [T, in].
        weight: [out, in], in the dtype of x.

    Returns:
        [T, out] in the dtype of x.
    """
    is_slow = x.dtype == torch.bfloat16 and not x.is_cuda and not multiplies_bf16()
    if is_slow and len(x) >= _MIN_TOKENS:
        return linear_by_blocks(x, weight)
    return functional.linear(x, weight)


def linear_by_blocks(x: Tensor, weight: Tensor) -> Tensor:
    """Return `linear` by fp32 products with blocks of the weight."""
    x_fp32 = x.float()
    y = x.new_empty(len(x), len(weight))
    block = max(1, _BLOCK // max(1, weight.shape[1]))
    for start in range(0, len(weight), block):
        stop = start + block
        y[:, start:stop] = functional.linear(x_fp32, weight[start:stop].float())
    return y


def linear_reference(x: Tensor, weight: Tensor) -> Tensor:
    """Specify `linear`."""
    return (x.float() @ weight.float().T).to(x.dtype)
