"""Attention with a learned bias per distance instead of rotary embeddings.

Three things differ from the usual: scores are scaled by 1/D, not 1/√D (queries and keys are
RMS-normed per head); beyond its extent the bias is 0, not minus infinity; and on global layers
long contexts scale scores and bias by a factor that grows with the logarithm of the position.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from inkling_runtime.ops.backend import Backend, backend_for
from inkling_runtime.ops.key_layout import KeyLayout
from inkling_runtime.ops.native import arguments
from inkling_runtime.ops.segments import Segments

_QUERY_BLOCK = 128
"""Queries per pass: bounds the score matrix and skips what causality hides."""


@dataclass(frozen=True, slots=True)
class AttentionRule:
    """What of an attention layer is not a tensor."""

    window: int | None = None
    """Sliding layers see this many tokens, the current one included; None: all."""
    log_scaling_floor: int | None = None
    """From which position on scores grow; None: never."""
    log_scaling_alpha: float = 0.0


def relative_attention(
    queries: Tensor,
    relatives: Tensor,
    profiles: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    segments: Segments,
    layout: KeyLayout,
    rule: AttentionRule,
) -> Tensor:
    """Return the attention of this step's tokens over everything that their sequences hold.

    Semantics::

        Δ      = t - s                            positions of query and key
        bias   = Σ_i relatives[t, n, i] · profiles[i, Δ]        for Δ < X, else 0
        τ(t)   = 1 + α · ln(max((t + 1) / floor, 1))            or 1 without a floor
        score  = τ(t) · (q[t, n] · k[s, n // (N / N_kv)] / D + bias)
        y[t,n] = Σ_s softmax_s(score) · v[s]      over 0 ≤ Δ (and Δ < window)

    Args:
        queries: [T, N, D], normed per head.
        relatives: [T, N, R_d].
        profiles: [R_d, X], bias over distance; X is the extent.
        key_cache: [blocks, block_size, N_kv, D], this step's keys already written.
        value_cache: [blocks, block_size, N_kv, D].
        segments: which tokens belong to which sequence.
        layout: where their keys are.
        rule: window and log scaling.

    Returns:
        [T, N, D] in the dtype of the queries; scores and softmax are fp32.
    """
    attend = _torch
    backend = backend_for(queries)
    if backend is Backend.TRITON:
        attend = _triton
    elif backend is Backend.NATIVE and _is_readable(queries, profiles, key_cache, value_cache):
        attend = _native
    return attend(queries, relatives, profiles, key_cache, value_cache, segments, layout, rule)


def _triton(
    queries: Tensor,
    relatives: Tensor,
    profiles: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    segments: Segments,
    layout: KeyLayout,
    rule: AttentionRule,
) -> Tensor:
    from inkling_runtime.ops.kernels import relative_attention as kernels

    return kernels.attend(
        queries,
        relatives,
        profiles,
        key_cache,
        value_cache,
        segments.cu_seqlens,
        layout.starts_device,
        layout.lengths_device,
        layout.block_table,
        decodes=any(rows.stop - rows.start == 1 for rows in segments.slices()),
        prefills=not segments.is_decode,
        window=rule.window,
        floor=rule.log_scaling_floor,
        alpha=rule.log_scaling_alpha,
    )


def _torch(
    queries: Tensor,
    relatives: Tensor,
    profiles: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    segments: Segments,
    layout: KeyLayout,
    rule: AttentionRule,
) -> Tensor:
    y = torch.empty_like(queries)
    for index, rows in enumerate(segments.slices()):
        keys, values = _gather_keys(key_cache, value_cache, layout, index)
        start, length = layout.starts[index], layout.lengths[index]
        first_position = length - (rows.stop - rows.start)
        for block, first, last in _iter_query_blocks(rows, first_position):
            low = start if rule.window is None else max(start, first - rule.window + 1)
            y[block] = _attend(
                queries[block].float(),
                relatives[block].float(),
                profiles,
                keys[low - start : last + 1 - start].float(),
                values[low - start : last + 1 - start].float(),
                first,
                rule,
            )
    return y


def _is_readable(queries: Tensor, profiles: Tensor, key_cache: Tensor, value_cache: Tensor) -> bool:
    """Return whether the compiled kernel reads these; a copy of the cache would cost too much."""
    return (
        arguments.has_kernels(queries.dtype)
        and profiles.dtype == key_cache.dtype == value_cache.dtype == queries.dtype
        and key_cache.is_contiguous()
        and value_cache.is_contiguous()
    )


def _native(
    queries: Tensor,
    relatives: Tensor,
    profiles: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    segments: Segments,
    layout: KeyLayout,
    rule: AttentionRule,
) -> Tensor:
    queries, relatives = queries.contiguous(), relatives.contiguous()
    profiles = profiles.contiguous()
    y = torch.empty_like(queries)
    arguments.kernel("relative_attention", queries.dtype)(
        queries.data_ptr(),
        relatives.data_ptr(),
        profiles.data_ptr(),
        key_cache.data_ptr(),
        value_cache.data_ptr(),
        segments.cu_seqlens.data_ptr(),
        layout.block_table.data_ptr(),
        layout.starts_device.data_ptr(),
        layout.lengths_device.data_ptr(),
        segments.num_sequences,
        layout.block_table.stride(0),
        *queries.shape[1:2],
        key_cache.shape[2],
        queries.shape[2],
        *profiles.shape,
        key_cache.shape[1],
        rule.window or 0,
        rule.log_scaling_floor or 0,
        rule.log_scaling_alpha,
        y.data_ptr(),
        torch.get_num_threads(),
    )
    return y


def _gather_keys(
    key_cache: Tensor, value_cache: Tensor, layout: KeyLayout, index: int
) -> tuple[Tensor, Tensor]:
    """Return keys and values of one sequence in the order of positions, a view where possible."""
    first, count = layout.first_blocks[index], layout.lengths[index] - layout.starts[index]
    num_blocks = -(-count // key_cache.shape[1])
    if first is not None:
        blocks = slice(first, first + num_blocks)
        return key_cache[blocks].flatten(0, 1), value_cache[blocks].flatten(0, 1)
    table = layout.block_table[index, :num_blocks]
    return key_cache[table].flatten(0, 1), value_cache[table].flatten(0, 1)


def _iter_query_blocks(rows: slice, first_position: int) -> Iterator[tuple[slice, int, int]]:
    """Yield rows of queries with the positions of the first and the last of them."""
    for begin in range(rows.start, rows.stop, _QUERY_BLOCK):
        end = min(begin + _QUERY_BLOCK, rows.stop)
        offset = first_position - rows.start
        yield slice(begin, end), begin + offset, end - 1 + offset


def _attend(
    queries: Tensor,
    relatives: Tensor,
    profiles: Tensor,
    keys: Tensor,
    values: Tensor,
    first_position: int,
    rule: AttentionRule,
) -> Tensor:
    """Attend from neighbouring queries to keys, the last of which is that of the last query."""
    num_queries, num_heads, head_dim = queries.shape
    num_keys, num_kv_heads, _ = keys.shape
    grouped = (queries / head_dim).view(num_queries, num_kv_heads, -1, head_dim).permute(1, 2, 0, 3)
    scores = grouped.flatten(1, 2) @ keys.permute(1, 2, 0)
    scores = scores.reshape(num_heads, num_queries, num_keys)
    biased = min(num_keys, profiles.shape[1] + num_queries - 1)
    scores[..., num_keys - biased :].add_(_bias_by_key(relatives, profiles, biased))
    if rule.log_scaling_floor is not None and first_position + num_queries > rule.log_scaling_floor:
        scores.mul_(_log_scaling(first_position, num_queries, rule, scores.device)[:, None])
    if num_queries > 1:
        hidden = _hidden_keys(num_queries, num_keys, rule.window, scores.device)
        scores.masked_fill_(hidden, -torch.inf)
    weights = scores.softmax(-1).view(num_kv_heads, -1, num_keys)
    y = weights @ values.transpose(0, 1)
    return y.view(num_heads, num_queries, head_dim).transpose(0, 1)


def _bias_by_key(relatives: Tensor, profiles: Tensor, num_keys: int) -> Tensor:
    """Return the bias [N, queries, keys] of the last `num_keys` keys, in the order of the keys.

    With keys ascending the distance descends, so a row of the flipped profiles is the bias of one
    query, and the row of the query before it is the same shifted by one. Rows padded to one
    length and read with a stride one element short give that shift without any index.
    """
    num_queries = relatives.shape[0]
    extent = min(profiles.shape[1], num_keys)
    by_distance = relatives.transpose(0, 1) @ profiles[:, :extent].float().flip(-1)
    padded = functional.pad(by_distance, (num_keys - extent, num_queries - 1))
    width = padded.shape[-1]
    strides = (num_queries * width, width - 1, 1)
    return padded.as_strided((len(padded), num_queries, num_keys), strides, num_queries - 1)


def _log_scaling(first: int, count: int, rule: AttentionRule, device: torch.device) -> Tensor:
    """Return τ of `count` positions from the first one on, fp32."""
    assert rule.log_scaling_floor is not None
    counts = torch.arange(first + 1, first + count + 1, device=device, dtype=torch.float32)
    return 1 + rule.log_scaling_alpha * (counts / rule.log_scaling_floor).clamp(min=1).log()


def _hidden_keys(
    num_queries: int, num_keys: int, window: int | None, device: torch.device
) -> Tensor:
    """Return which keys a query must not see, bool [queries, keys]."""
    distance = torch.arange(num_keys - num_queries, num_keys, device=device)[:, None]
    distance = distance - torch.arange(num_keys, device=device)
    hidden = distance < 0
    return hidden if window is None else hidden | (distance >= window)


def relative_attention_reference(
    queries: Tensor,
    relatives: Tensor,
    profiles: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    segments: Segments,
    layout: KeyLayout,
    rule: AttentionRule,
) -> Tensor:
    """Specify `relative_attention`, one query after the other."""
    y = torch.empty_like(queries)
    block_size, num_kv_heads = key_cache.shape[1:3]
    for index, rows in enumerate(segments.slices()):
        start, length = layout.starts[index], layout.lengths[index]
        for t in range(rows.start, rows.stop):
            position = length - (rows.stop - t)
            low = start if rule.window is None else max(0, position - rule.window + 1)
            seen = torch.arange(low, position + 1, device=queries.device)
            slots = layout.block_table[index, (seen - start) // block_size] * block_size
            slots = slots + (seen - start) % block_size
            group = queries.shape[1] // num_kv_heads
            keys = key_cache.flatten(0, 1)[slots].float().repeat_interleave(group, dim=1)
            values = value_cache.flatten(0, 1)[slots].float().repeat_interleave(group, dim=1)
            y[t] = _attend_reference(
                queries[t], relatives[t], profiles, keys, values, seen, position, rule
            )
    return y


def _attend_reference(
    query: Tensor,
    relative: Tensor,
    profiles: Tensor,
    keys: Tensor,
    values: Tensor,
    seen: Tensor,
    position: int,
    rule: AttentionRule,
) -> Tensor:
    distance = position - seen
    by_distance = relative.float() @ profiles.float()
    within = distance < profiles.shape[1]
    bias = by_distance[:, distance.clamp(max=profiles.shape[1] - 1)] * within
    scores = torch.einsum("nd,snd->ns", query.float(), keys) / query.shape[-1] + bias
    if rule.log_scaling_floor is not None:
        ratio = torch.tensor((position + 1) / rule.log_scaling_floor).clamp(min=1)
        scores = scores * (1 + rule.log_scaling_alpha * ratio.log())
    return torch.einsum("ns,snd->nd", scores.softmax(-1), values).to(query.dtype)
