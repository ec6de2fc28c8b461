"""From the joint projection of q, k, v and r to what attention reads.

Keys and values pass their short convolutions, queries and keys are normed per head (keys after
their convolution, values never), and keys and values go into the block cache.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_runtime.ops.backend import Backend, backend_for
from inkling_runtime.ops.conv_plan import ConvPlan
from inkling_runtime.ops.lora_expand import expand_pending, expand_pending_reference
from inkling_runtime.ops.native import arguments
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.rms_norm import rms_norm, rms_norm_reference
from inkling_runtime.ops.short_conv import short_conv, short_conv_reference


@dataclass(frozen=True, slots=True)
class HeadShape:
    """How the columns of the projection fall into heads: q, k, v, then r."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    d_rel: int

    @property
    def widths(self) -> tuple[int, int, int, int]:
        """Columns of q, k, v and r."""
        key = self.num_kv_heads * self.head_dim
        return self.num_heads * self.head_dim, key, key, self.num_heads * self.d_rel

    @property
    def starts(self) -> tuple[int, int, int, int]:
        """First columns of q, k, v and r."""
        q, k, v, _ = self.widths
        return 0, q, q + k, q + k + v


@dataclass(frozen=True, slots=True)
class PrologueWeights:
    """Convolutions [W, N_kv·D] in fp32 and norms [D]."""

    k_conv: Tensor
    v_conv: Tensor
    q_norm: Tensor
    k_norm: Tensor
    eps: float


@dataclass(frozen=True, slots=True)
class PrologueState:
    """What is kept of keys and values, written in place."""

    k_conv: Tensor
    """[slots, W-1, N_kv·D], the inputs of the convolution on k."""
    v_conv: Tensor
    key_cache: Tensor
    """[blocks, block_size, N_kv, D]."""
    value_cache: Tensor


def qkvr_prologue(
    projected: Tensor,
    pending: PendingDelta | None,
    shape: HeadShape,
    weights: PrologueWeights,
    state: PrologueState,
    plan: ConvPlan,
    slot_mapping: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return queries and relatives; keys and values go into the cache.

    Semantics::

        q, k, v, r = split(projected + pending deltas)
        q = norm(q) per head                  k = norm(conv(k)) per head         v = conv(v)
        cache[slot // block_size, slot % block_size] = k[t], v[t]       slot = slot_mapping[t]

    The convolutions move their states forward (`short_conv`).

    Args:
        projected: [T, widths of q, k, v, r]; may be overwritten.
        pending: LoRA deltas that are still to be added; None: none.
        shape: heads and widths.
        weights: convolutions and norms.
        state: convolution states and the cache.
        plan: whose convolution states are read and written.
        slot_mapping: int64 [T], distinct: the row of each token in the cache.

    Returns:
        q [T, N, D] and r [T, N, R_d], both contiguous, in the dtype of `projected`.
    """
    backend = backend_for(projected)
    if backend is Backend.TRITON:
        return _triton(projected, pending, shape, weights, state, plan, slot_mapping)
    projected = expand_pending(projected, pending)
    if backend is Backend.NATIVE and _is_readable(projected, weights, state):
        return _native(projected, shape, weights, state, plan, slot_mapping)
    return _torch(projected, shape, weights, state, plan, slot_mapping)


def _triton(
    projected: Tensor,
    pending: PendingDelta | None,
    shape: HeadShape,
    weights: PrologueWeights,
    state: PrologueState,
    plan: ConvPlan,
    slot_mapping: Tensor,
) -> tuple[Tensor, Tensor]:
    from inkling_runtime.ops.kernels import qkvr_prologue as kernels

    own = {(start, start + width) for start, width in zip(shape.starts, shape.widths, strict=True)}
    if pending is not None and not {(part.start, part.stop) for part in pending.parts} <= own:
        projected, pending = expand_pending(projected, pending), None
    return kernels.prepare(projected, pending, shape, weights, state, plan, slot_mapping)


def _torch(
    projected: Tensor,
    shape: HeadShape,
    weights: PrologueWeights,
    state: PrologueState,
    plan: ConvPlan,
    slot_mapping: Tensor,
) -> tuple[Tensor, Tensor]:
    q, k, v, r = projected.split(shape.widths, dim=1)
    k = short_conv(k, weights.k_conv, state.k_conv, plan)
    v = short_conv(v, weights.v_conv, state.v_conv, plan)
    heads = (-1, shape.num_kv_heads, shape.head_dim)
    k = rms_norm(k.view(heads), weights.k_norm, weights.eps)
    state.key_cache.flatten(0, 1).index_copy_(0, slot_mapping, k)
    state.value_cache.flatten(0, 1).index_copy_(0, slot_mapping, v.view(heads))
    q = rms_norm(q.reshape(-1, shape.num_heads, shape.head_dim), weights.q_norm, weights.eps)
    return q, r.reshape(-1, shape.num_heads, shape.d_rel)


def _is_readable(projected: Tensor, weights: PrologueWeights, state: PrologueState) -> bool:
    """Return whether the compiled kernel reads these; the state it must find in place."""
    dtype, cache = projected.dtype, state.key_cache
    return (
        arguments.has_kernels(dtype)
        and weights.q_norm.dtype == state.k_conv.dtype == cache.dtype == dtype
        and cache.is_contiguous()
        and state.value_cache.is_contiguous()
        and state.k_conv.is_contiguous()
        and state.v_conv.is_contiguous()
    )


def _native(
    projected: Tensor,
    shape: HeadShape,
    weights: PrologueWeights,
    state: PrologueState,
    plan: ConvPlan,
    slot_mapping: Tensor,
) -> tuple[Tensor, Tensor]:
    projected = arguments.rows(projected)
    taps, heads = weights.k_conv.shape[0], (projected.shape[0], shape.num_heads)
    q = torch.empty(*heads, shape.head_dim, dtype=projected.dtype)
    r = torch.empty(*heads, shape.d_rel, dtype=projected.dtype)
    arguments.kernel("qkvr_prologue", projected.dtype)(
        projected.data_ptr(),
        projected.stride(0),
        shape.num_heads,
        shape.num_kv_heads,
        shape.head_dim,
        shape.d_rel,
        weights.k_conv.data_ptr(),
        weights.v_conv.data_ptr(),
        taps,
        state.k_conv.data_ptr(),
        state.v_conv.data_ptr(),
        weights.q_norm.data_ptr(),
        weights.k_norm.data_ptr(),
        weights.eps,
        slot_mapping.data_ptr(),
        state.key_cache.data_ptr(),
        state.value_cache.data_ptr(),
        q.data_ptr(),
        r.data_ptr(),
        *plan.addresses,
        torch.get_num_threads(),
    )
    return q, r


def qkvr_prologue_reference(
    projected: Tensor,
    pending: PendingDelta | None,
    shape: HeadShape,
    weights: PrologueWeights,
    state: PrologueState,
    plan: ConvPlan,
    slot_mapping: Tensor,
) -> tuple[Tensor, Tensor]:
    """Specify `qkvr_prologue`, one token after the other."""
    projected = expand_pending_reference(projected, pending)
    q, k, v, r = projected.split(shape.widths, dim=1)
    k = short_conv_reference(k, weights.k_conv, state.k_conv, plan)
    v = short_conv_reference(v, weights.v_conv, state.v_conv, plan)
    block_size = state.key_cache.shape[1]
    for t, slot in enumerate(slot_mapping.tolist()):
        place = slot // block_size, slot % block_size
        key = k[t].view(shape.num_kv_heads, shape.head_dim)
        state.key_cache[place] = rms_norm_reference(key, weights.k_norm, weights.eps)
        state.value_cache[place] = v[t].view_as(key)
    q = q.reshape(-1, shape.num_heads, shape.head_dim)
    return (
        rms_norm_reference(q, weights.q_norm, weights.eps),
        r.reshape(-1, shape.num_heads, shape.d_rel),
    )
