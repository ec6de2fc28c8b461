"""The router: which routed experts a token goes to, and with which weights.

The shared experts are always on, but their weights come out of the same normalisation: the last
S logits are theirs. The selection bias decides only who is selected, never the weights.
"""

import torch
from torch import Tensor
from torch.nn import functional

from inkling_runtime.ops.backend import Backend, backend_for
from inkling_runtime.ops.native import arguments

MAX_NATIVE_TOKENS = 16
"""Beyond so many tokens the logits are torch's product; the selection stays ours."""


def route_tokens(
    x: Tensor, weight: Tensor, bias: Tensor, top_k: int, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the selected experts, their weights and the weights of the shared experts.

    Semantics::

        z        = x · weightᵀ                                    E + S logits, fp32
        selected = top-k of sigmoid(z[:E]) + bias                 ties: smaller id
        w_i      = sigmoid(z_i) / Σ_j sigmoid(z_j) · scale        i, j over selected and shared

    Args:
        x: [T, H].
        weight: [E+S, H] fp32, the shared experts last.
        bias: [E] fp32.
        top_k: K.
        scale: route_scale · global_scale.

    Returns:
        expert ids [T, K] int64 in descending order of their score, their weights [T, K] fp32, and
        the gammas [T, S] fp32.
    """
    backend = backend_for(x)
    if backend is Backend.TRITON:
        return _triton(x, weight, bias, top_k, scale)
    if backend is Backend.NATIVE and arguments.has_kernels(x.dtype):
        return _native(x, weight, bias, top_k, scale)
    return _torch(x, weight, bias, top_k, scale)


def _torch(
    x: Tensor, weight: Tensor, bias: Tensor, top_k: int, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    num_experts = bias.shape[0]
    logits = functional.linear(x.float(), weight)
    scores = logits[:, :num_experts].sigmoid().add_(bias)
    ids = scores.sort(dim=-1, descending=True, stable=True).indices[:, :top_k]
    chosen = torch.cat([logits.gather(1, ids), logits[:, num_experts:]], dim=1)
    log_sigmoid = functional.softplus(-chosen).neg_()
    weights = log_sigmoid.softmax(-1).mul_(scale)
    return ids, weights[:, :top_k], weights[:, top_k:]


def _triton(
    x: Tensor, weight: Tensor, bias: Tensor, top_k: int, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    from inkling_runtime.ops.kernels import router as kernels

    return kernels.route_tokens(x, weight, bias, top_k, scale)


def _native(
    x: Tensor, weight: Tensor, bias: Tensor, top_k: int, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    tokens, rows, num_experts = x.shape[0], weight.shape[0], bias.shape[0]
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    logits = None if tokens <= MAX_NATIVE_TOKENS else functional.linear(x.float(), weight)
    ids = torch.empty(tokens, top_k, dtype=torch.int64)
    weights = torch.empty(tokens, top_k)
    gammas = torch.empty(tokens, rows - num_experts)
    arguments.kernel("route_tokens", x.dtype)(
        x.data_ptr(),
        weight.data_ptr(),
        bias.data_ptr(),
        None if logits is None else logits.data_ptr(),
        tokens,
        x.shape[1],
        num_experts,
        rows - num_experts,
        top_k,
        scale,
        ids.data_ptr(),
        weights.data_ptr(),
        gammas.data_ptr(),
        torch.get_num_threads(),
    )
    return ids, weights, gammas


def route_tokens_reference(
    x: Tensor, weight: Tensor, bias: Tensor, top_k: int, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Specify `route_tokens`, one token after the other."""
    num_experts = bias.shape[0]
    all_ids, all_weights = [], []
    for token in x.float():
        sigmoid = 1 / (1 + (-(weight.float() @ token)).exp())
        scores = (sigmoid[:num_experts] + bias.float()).tolist()
        selected = sorted(range(num_experts), key=lambda i: (-scores[i], i))[:top_k]
        shared = range(num_experts, weight.shape[0])
        chosen = sigmoid[[*selected, *shared]]
        all_ids.append(torch.tensor(selected, dtype=torch.int64))
        all_weights.append(chosen / chosen.sum() * scale)
    weights = torch.stack(all_weights)
    return torch.stack(all_ids).to(x.device), weights[:, :top_k], weights[:, top_k:]
