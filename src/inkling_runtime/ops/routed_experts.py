"""The routed experts of a layer, with the LoRA deltas of their three matrices.

A route is one (token, selected expert) pair; T tokens have T·K of them. The work is done per
expert over all its routes, and the results are summed per token in the router's order, so that
a token's sum does not depend on the other tokens of the batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_runtime.ops.lora_pair import (
    GatedLora,
    LoraPair,
    LoraSlots,
    add_rows,
    delta_reference,
    expand,
    shrink,
)
from inkling_runtime.ops.silu_and_mul import silu_and_mul
from inkling_runtime.ops.token_adapters import TokenAdapters


def routed_experts(
    x: Tensor,
    w13: Tensor,
    w2: Tensor,
    expert_ids: Tensor,
    expert_weights: Tensor,
    lora: GatedLora | None,
    adapters: TokenAdapters,
) -> Tensor:
    """Return the weighted sum of each token's selected experts.

    Semantics::

        g, u = W1_e · x[t], W3_e · x[t]       each plus its own delta s · B_e · (A_e · x[t])
        h    = silu(g) · u
        y[t] = Σ_k w[t, k] · (W2_e · h + s · B_e · (A_e · h))         e = expert_ids[t, k]

    A factor with one expert is shared by all (`LoraPair`).

    Args:
        x: [T, H].
        w13: [E, 2F, H], W1 (gate) above W3 (up).
        w2: [E, H, F].
        expert_ids: [T, K] int64.
        expert_weights: [T, K] fp32.
        lora: the slots of the three sites; None: no deltas.
        adapters: the adapter of each token.

    Returns:
        [T, H] in the dtype of x; the sum over k is fp32.
    """
    if not adapters.groups:
        lora = None
    routes = _sort_routes(expert_ids, adapters if lora else None)
    inputs = x[routes.tokens]
    gate_up = x.new_empty(inputs.shape[0], w13.shape[1])
    for expert, rows in routes.iter_experts():
        torch.mm(inputs[rows], w13[expert].T, out=gate_up[rows])
    if lora is not None:
        width = w13.shape[1] // 2
        _add_routed(gate_up[:, :width], x, inputs, lora.gate, routes, adapters)
        _add_routed(gate_up[:, width:], x, inputs, lora.up, routes, adapters)
    hidden = silu_and_mul(gate_up)
    outputs = torch.empty_like(inputs)
    for expert, rows in routes.iter_experts():
        torch.mm(hidden[rows], w2[expert].T, out=outputs[rows])
    y = _sum_routes(outputs, expert_weights, routes)
    if lora is not None:
        _add_down(y, hidden, expert_weights, lora.down, routes, adapters)
    return y.to(x.dtype)


@dataclass(frozen=True, slots=True)
class _Routes:
    """Routes sorted by expert and, within an expert, by adapter."""

    tokens: Tensor
    """[T·K]: the token of each sorted route."""
    inverse: Tensor
    """[T, K]: the sorted place of each route."""
    groups: tuple[tuple[int, int, slice], ...]
    """(expert, adapter or -1, sorted places), ascending."""

    def iter_experts(self) -> Iterator[tuple[int, slice]]:
        """Yield the sorted places of each expert that has any."""
        start = 0
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
    groups, start = [], 0
    for code, count in zip(keys.tolist(), counts.tolist(), strict=True):
        expert, adapter = divmod(code, radix)
        groups.append((expert, adapter - 1, slice(start, start + count)))
        start += count
    return _Routes(order // top_k, inverse.view_as(expert_ids), tuple(groups))


def _sum_routes(outputs: Tensor, weights: Tensor, routes: _Routes) -> Tensor:
    """Return the weighted sum per token, fp32 [T, …], of values per sorted route."""
    return (outputs[routes.inverse] * weights[..., None]).sum(1)


def _add_routed(
    y: Tensor,
    x: Tensor,
    inputs: Tensor,
    slots: LoraSlots,
    routes: _Routes,
    adapters: TokenAdapters,
) -> None:
    """Add the gate or up delta of every adapter to y [T·K, F], in place."""
    for adapter, token_rows in adapters.groups:
        pair = slots[adapter]
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
    slots: LoraSlots,
    routes: _Routes,
    adapters: TokenAdapters,
) -> None:
    """Add the down delta of every adapter to the sums y [T, H], in place.

    The sum over a token's experts is taken in rank space where B is shared, so that B is applied
    once per token and not once per route.
    """
    for adapter, token_rows in adapters.groups:
        pair = slots[adapter]
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
    w13: Tensor,
    w2: Tensor,
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
            gate = w13[expert, :width].float() @ token
            up = w13[expert, width:].float() @ token
            if lora is not None:
                gate += delta_reference(lora.gate, adapter, token, expert)
                up += delta_reference(lora.up, adapter, token, expert)
            hidden = gate * torch.sigmoid(gate) * up
            down = w2[expert].float() @ hidden
            if lora is not None:
                down += delta_reference(lora.down, adapter, hidden, expert)
            y[t] += expert_weights[t, k] * down
    return y.to(x.dtype)
