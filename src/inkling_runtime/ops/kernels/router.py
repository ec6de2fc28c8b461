"""The router on a GPU, in two launches: partial logits, then everything per token.

Few tokens cannot fill a device with rows of logits alone, so the hidden size is cut into spans
that are summed in order by the second kernel: no atomics, and no program waits for another. Many
tokens are a matrix product like any other, and torch's takes the place of the first launch.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_runtime.ops.kernels.launch import launch

MOST_TOKENS = 64
"""Up to so many tokens the first launch is ours."""
ROWS, SPAN, TOKENS = 16, 512, 8
"""Logits, hidden features and, at most, tokens per program."""


@triton.jit(do_not_specialize=["num_tokens", "num_logits"])
def logits_kernel(
    x, weight, partials, num_tokens, num_logits, HIDDEN: tl.constexpr,
    ROWS: tl.constexpr, SPAN: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Multiply one span of the hidden size; grid (rows, spans, tokens)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * SPAN + tl.arange(0, SPAN)
    mask = (row < num_logits)[:, None] & (column < HIDDEN)[None, :]
    w = tl.load(weight + row.to(tl.int64)[:, None] * HIDDEN + column[None, :], mask=mask, other=0.0)
    for index in tl.static_range(TOKENS):
        token = tl.program_id(2).to(tl.int64) * TOKENS + index
        columns = tl.where(token < num_tokens, HIDDEN, 0)
        values = tl.load(x + token * HIDDEN + column, mask=column < columns, other=0.0)
        partial = tl.sum(w * values.to(tl.float32)[None, :], 1)
        place = (tl.program_id(1) * num_tokens + token) * num_logits + row
        rows = tl.where(token < num_tokens, num_logits, 0)
        tl.store(partials + place, partial, mask=row < rows)


@triton.jit(do_not_specialize=["num_tokens"])
def select_kernel(
    partials, bias, ids, weights, gammas, num_tokens, scale,
    EXPERTS: tl.constexpr, SHARED: tl.constexpr, TOP_K: tl.constexpr, SPANS: tl.constexpr,
    LOGITS: tl.constexpr, CHOSEN: tl.constexpr,
):  # fmt: skip
    """Select experts and weigh them together with the shared ones; grid (token,)."""
    token = tl.program_id(0).to(tl.int64)
    logit = tl.arange(0, LOGITS)
    stored = logit < EXPERTS + SHARED
    z = tl.zeros([LOGITS], tl.float32)
    for span in tl.static_range(SPANS):
        place = (span * num_tokens + token) * (EXPERTS + SHARED) + logit
        z += tl.load(partials + place, mask=stored, other=0.0)
    routed = logit < EXPERTS
    # exp must not overflow; sigmoids below the least normal number count as equal.
    sigmoid = tl.div_rn(1.0, 1.0 + tl.exp(-tl.maximum(z, -87.0)))
    score = sigmoid + tl.load(bias + logit, mask=routed, other=0.0)
    # A logit that is no number must still not select an expert that does not exist.
    score = tl.where(score == score, score, -3.0e38)
    score = tl.where(routed, score, float("-inf"))
    place = tl.arange(0, CHOSEN)
    chosen = tl.zeros([CHOSEN], tl.float32)
    for index in tl.static_range(TOP_K + SHARED):
        if index < TOP_K:
            best = tl.min(tl.where(score == tl.max(score, 0), logit, LOGITS), 0)
            score = tl.where(logit == best, float("-inf"), score)
            tl.store(ids + token * TOP_K + index, best.to(tl.int64))
        else:
            best = EXPERTS + (index - TOP_K)
        chosen += tl.where(place == index, tl.sum(tl.where(logit == best, z, 0.0), 0), 0.0)
    log_sigmoid = tl.minimum(chosen, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(chosen)))
    log_sigmoid = tl.where(place < TOP_K + SHARED, log_sigmoid, -3.0e38)
    weight = tl.exp(log_sigmoid - tl.max(log_sigmoid, 0))
    weight = tl.where(place < TOP_K + SHARED, weight, 0.0)
    weight = weight / tl.sum(weight, 0) * scale
    tl.store(weights + token * TOP_K + place, weight, mask=place < TOP_K)
    is_shared = (place >= TOP_K) & (place < TOP_K + SHARED)
    tl.store(gammas + token * SHARED + (place - TOP_K), weight, mask=is_shared)


def route_tokens(
    x: Tensor, weight: Tensor, bias: Tensor, top_k: int, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, weights and gammas as the op of the same name does."""
    num_tokens, num_logits, num_experts = len(x), len(weight), len(bias)
    partials = _partial_logits(x, weight.contiguous())
    ids = torch.empty(num_tokens, top_k, dtype=torch.int64, device=x.device)
    weights = torch.empty(num_tokens, top_k, dtype=torch.float32, device=x.device)
    gammas = weights.new_empty(num_tokens, num_logits - num_experts)
    launch(
        select_kernel,
        (num_tokens,),
        partials,
        bias.contiguous(),
        ids,
        weights,
        gammas,
        num_tokens,
        scale,
        EXPERTS=num_experts,
        SHARED=num_logits - num_experts,
        TOP_K=top_k,
        SPANS=len(partials),
        LOGITS=triton.next_power_of_2(num_logits),
        CHOSEN=triton.next_power_of_2(top_k + num_logits - num_experts),
        num_warps=1,
    )
    return ids, weights, gammas


def _partial_logits(x: Tensor, weight: Tensor) -> Tensor:
    """Return the logits as a sum over the first dimension, fp32 [spans, T, E+S]."""
    num_tokens, hidden_size = x.shape
    if num_tokens > MOST_TOKENS:
        return (x.float() @ weight.T)[None]
    spans, tokens = triton.cdiv(hidden_size, SPAN), min(TOKENS, triton.next_power_of_2(num_tokens))
    partials = x.new_empty(spans, num_tokens, len(weight), dtype=torch.float32)
    grid = (triton.cdiv(len(weight), ROWS), spans, triton.cdiv(num_tokens, tokens))
    launch(
        logits_kernel,
        grid,
        x.contiguous(),
        weight,
        partials,
        num_tokens,
        len(weight),
        HIDDEN=hidden_size,
        ROWS=ROWS,
        SPAN=SPAN,
        TOKENS=tokens,
        num_warps=4,
    )
    return partials


def _real_size(num_tokens: int) -> object:
    x = torch.empty(num_tokens, 6144, dtype=torch.bfloat16)
    return route_tokens(x, torch.empty(258, 6144), torch.empty(256), 6, 2.5)


VARIANTS = {"a batch": lambda: _real_size(64)}
