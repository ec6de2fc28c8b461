"""The routed experts of a layer, with the LoRA deltas of their three matrices.

A route is one (token, selected expert) pair; T tokens have T·K of them. The work is done per
expert over all its routes, and the results are summed per token in the router's order, so that
a token's sum does not depend on the other tokens of the batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_runtime.ops.backend import Backend, backend_for
from inkling_runtime.ops.expert_shrink import GatedShrunk, expert_shrink
from inkling_runtime.ops.linear import linear
from inkling_runtime.ops.lora_pair import LoraPair, add_rows, delta_reference, expand, shrink
from inkling_runtime.ops.lora_slots import GatedLora, LoraPart, LoraSlots, pair_of
from inkling_runtime.ops.native.experts import can_take, run_experts
from inkling_runtime.ops.nvfp4 import ExpertWeights, expert_weight
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.silu_and_mul import silu_and_mul
from inkling_runtime.ops.token_adapters import TokenAdapters

MAX_NATIVE_ROUTES = 16
"""Per expert, on average. Above, torch's matrix product is faster."""


def routed_experts(
    x: Tensor,
    w13: ExpertWeights,
    w2: ExpertWeights,
    expert_ids: Tensor,
    expert_weights: Tensor,
    lora: GatedLora | None,
    adapters: TokenAdapters,
    shrunk: GatedShrunk | None = None,
) -> tuple[Tensor, PendingDelta | None]:
    """Return the weighted sum of each token's selected experts, and what is still to be added.

    Semantics::

        g, u = W1_e · x[t], W3_e · x[t]       each plus its own delta s · B_e · (A_e · x[t])
        h    = silu(g) · u
        y[t] = Σ_k w[t, k] · (W2_e · h + s · B_e · (A_e · h))         e = expert_ids[t, k]

    A factor with one expert is shared by all (`LoraPair`).

    Args:
        x: [T, H].
        w13: [E, 2F, H], W1 (gate) above W3 (up); plain or in NVFP4.
        w2: [E, H, F].
        expert_ids: [T, K] int64; -1: an expert that is not held here, which adds nothing.
        expert_weights: [T, K] fp32.
        lora: the slots of the three sites; None: no deltas.
        adapters: the adapter of each token.
        shrunk: what `expert_shrink` returned for these experts; None: not taken ahead.

    Returns:
        y [T, H] in the dtype of x, the sum over k is fp32; and a delta that the reader of y has
        still to add, None where y is complete.
    """
    backend = backend_for(x)
    if backend is Backend.TRITON:
        return _experts_triton(x, w13, w2, expert_ids, expert_weights, lora, adapters, shrunk)
    is_small = expert_ids.numel() <= MAX_NATIVE_ROUTES * w13.shape[0]
    is_native = backend is Backend.NATIVE and is_small and can_take(x, (w13, w2), lora)
    run = _experts_native if is_native else _experts_torch
    return run(x, w13, w2, expert_ids, expert_weights, lora, adapters), None


def _experts_native(
    x: Tensor,
    w13: ExpertWeights,
    w2: ExpertWeights,
    expert_ids: Tensor,
    expert_weights: Tensor,
    lora: GatedLora | None,
    adapters: TokenAdapters,
) -> Tensor:
    _, rows, columns = w2.shape
    strides = (rows * columns, columns)
    return run_experts(x, w13, w2, strides, expert_ids, expert_weights, lora, adapters)


def _experts_torch(
    x: Tensor,
    w13: ExpertWeights,
    w2: ExpertWeights,
    expert_ids: Tensor,
    expert_weights: Tensor,
    lora: GatedLora | None,
    adapters: TokenAdapters,
) -> Tensor:
    if not adapters.groups:
        lora = None
    routes = _sort_routes(expert_ids, adapters if lora else None)
    inputs = x[routes.tokens]
    gate_up = x.new_empty(inputs.shape[0], w13.shape[1])
    for expert, rows in routes.iter_experts():
        gate_up[rows] = linear(inputs[rows], expert_weight(w13, expert, x.dtype))
    if lora is not None:
        width = w13.shape[1] // 2
        _add_routed(gate_up[:, :width], x, inputs, lora.gate, routes, adapters)
        _add_routed(gate_up[:, width:], x, inputs, lora.up, routes, adapters)
    hidden = silu_and_mul(gate_up)
    outputs = torch.empty_like(inputs)
    outputs[: routes.num_foreign] = 0
    for expert, rows in routes.iter_experts():
        outputs[rows] = linear(hidden[rows], expert_weight(w2, expert, x.dtype))
    y = _sum_routes(outputs, expert_weights, routes)
    if lora is not None:
        _add_down(y, hidden, expert_weights, lora.down, routes, adapters)
    return y.to(x.dtype)


def _experts_triton(
    x: Tensor,
    w13: ExpertWeights,
    w2: ExpertWeights,
    expert_ids: Tensor,
    expert_weights: Tensor,
    lora: GatedLora | None,
    adapters: TokenAdapters,
    shrunk: GatedShrunk | None,
) -> tuple[Tensor, PendingDelta | None]:
    from inkling_runtime.ops.kernels.routed_experts import MOST_ROUTES, run_routes
    from inkling_runtime.ops.kernels.routed_tiles import run_tiles

    if not adapters.groups:
        lora = None
    if lora and shrunk is None:
        shrunk, _ = expert_shrink(x, expert_ids, lora, None, 0, adapters)
    run = run_routes if expert_ids.numel() <= MOST_ROUTES else run_tiles
    y, down = run(
        x.contiguous(),
        w13,
        w2,
        expert_ids.contiguous(),
        expert_weights.contiguous(),
        lora,
        shrunk,
        adapters.ids,
    )
    if lora is None or lora.down is None or down is None:
        return y, None
    part = LoraPart(0, x.shape[1], lora.down)
    return y, PendingDelta(down, (part,), (0,), adapters)


@dataclass(frozen=True, slots=True)
class _Routes:
    """Routes sorted by expert and, within an expert, by adapter."""

    tokens: Tensor
    """[T·K]: the token of each sorted route."""
    inverse: Tensor
    """[T, K]: the sorted place of each route."""
    groups: tuple[tuple[int, int, slice], ...]
    """(expert, adapter or -1, sorted places), ascending."""
    num_foreign: int
    """The first so many sorted routes go to no expert."""

    def iter_experts(self) -> Iterator[tuple[int, slice]]:
        """Yield the sorted places of each expert that has any."""
        start = self.num_foreign
        for index, (expert, _, rows) in enumerate(self.groups):
            if index + 1 == len(self.groups) or self.groups[index + 1][0] != expert:
                yield expert, slice(start, rows.stop)
                start = rows.stop

    def iter_adapter(self, adapter: int) -> Iterator[tuple[int, slice]]:
        """Yield the experts and sorted places of one adapter's routes."""
        for expert, owner, rows in self.groups:
            if owner == adapter:
                yield expert, rows


def _sort_routes(expert_ids: Tensor, adapters: TokenAdapters | None) -> _Routes:
    top_k, num_routes = expert_ids.shape[1], expert_ids.numel()
    key, radix = expert_ids.flatten(), 1
    if adapters is not None:
        radix = adapters.groups[-1][0] + 2
        key = key * radix + (adapters.ids + 1).repeat_interleave(top_k, output_size=num_routes)
    key, order = key.sort(stable=True)
    keys, counts = torch.unique_consecutive(key, return_counts=True)
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(num_routes, device=order.device)
    groups, start, num_foreign = [], 0, 0
    for code, count in zip(keys.tolist(), counts.tolist(), strict=True):
        expert, adapter = divmod(code, radix)
        if expert < 0:
            num_foreign += count
        else:
            groups.append((expert, adapter - 1, slice(start, start + count)))
        start += count
    return _Routes(order // top_k, inverse.view_as(expert_ids), tuple(groups), num_foreign)


def _sum_routes(outputs: Tensor, weights: Tensor, routes: _Routes) -> Tensor:
    """Return the weighted sum per token, fp32 [T, …], of values per sorted route."""
    return (outputs[routes.inverse] * weights[..., None]).sum(1)


def _add_routed(
    y: Tensor,
    x: Tensor,
    inputs: Tensor,
    slots: LoraSlots | None,
    routes: _Routes,
    adapters: TokenAdapters,
) -> None:
    """Add the gate or up delta of every adapter to y [T·K, F], in place."""
    for adapter, token_rows in adapters.groups:
        pair = pair_of(slots, adapter)
        if pair is None:
            continue
        shared = _shrink_tokens(x, token_rows, pair)[routes.tokens] if len(pair.a) == 1 else None
        for expert, rows in routes.iter_adapter(adapter):
            z = shrink(inputs[rows], pair.expert_a(expert)) if shared is None else shared[rows]
            y[rows].add_(expand(z, pair.expert_b(expert), pair.scaling))


def _shrink_tokens(x: Tensor, rows: slice | Tensor, pair: LoraPair) -> Tensor:
    """Return the shared A's product once per token, zero for tokens of other adapters."""
    z = torch.zeros(x.shape[0], pair.a.shape[1], device=x.device)
    z[rows] = shrink(x[rows], pair.a[0])
    return z


def _add_down(
    y: Tensor,
    hidden: Tensor,
    weights: Tensor,
    slots: LoraSlots | None,
    routes: _Routes,
    adapters: TokenAdapters,
) -> None:
    """Add the down delta of every adapter to the sums y [T, H], in place.

    The sum over a token's experts is taken in rank space where B is shared, so that B is applied
    once per token and not once per route.
    """
    for adapter, token_rows in adapters.groups:
        pair = pair_of(slots, adapter)
        if pair is None:
            continue
        is_shared = len(pair.b) == 1
        width = pair.b.shape[2] if is_shared else pair.b.shape[1]
        values = torch.zeros(hidden.shape[0], width, device=hidden.device)
        for expert, rows in routes.iter_adapter(adapter):
            z = shrink(hidden[rows], pair.expert_a(expert))
            values[rows] = z if is_shared else expand(z, pair.expert_b(expert), pair.scaling)
        total = _sum_routes(values, weights, routes)[token_rows]
        add_rows(y, token_rows, expand(total, pair.b[0], pair.scaling) if is_shared else total)


def routed_experts_reference(
    x: Tensor,
    w13: ExpertWeights,
    w2: ExpertWeights,
    expert_ids: Tensor,
    expert_weights: Tensor,
    lora: GatedLora | None,
    adapters: TokenAdapters,
) -> Tensor:
    """Specify `routed_experts`, one route after the other."""
    y = torch.zeros(x.shape, device=x.device)
    width = w13.shape[1] // 2
    for t, adapter in enumerate(adapters.ids.tolist()):
        token = x[t].float()
        for k, expert in enumerate(expert_ids[t].tolist()):
            if expert < 0:
                continue
            gate, up = (expert_weight(w13, expert, torch.float32).float() @ token).split(width)
            if lora is not None:
                gate += delta_reference(pair_of(lora.gate, adapter), token, expert)
                up += delta_reference(pair_of(lora.up, adapter), token, expert)
            hidden = gate * torch.sigmoid(gate) * up
            down = expert_weight(w2, expert, torch.float32).float() @ hidden
            if lora is not None:
                down += delta_reference(pair_of(lora.down, adapter), hidden, expert)
            y[t] += expert_weights[t, k] * down
    return y.to(x.dtype)
