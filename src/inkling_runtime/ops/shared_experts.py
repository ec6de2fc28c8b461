"""The shared experts of a layer: always on, scaled by the router's gammas.

Laid side by side the S experts are one wide MLP, which takes two products instead of 2·S. The
gammas multiply the activation, so the down delta of an adapter sees them too.
"""

import torch
from torch import Tensor
from torch.nn import functional

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


def shared_experts(
    x: Tensor,
    w13: Tensor,
    w2: Tensor,
    gammas: Tensor,
    lora: GatedLora | None,
    adapters: TokenAdapters,
) -> Tensor:
    """Return the sum of the shared experts.

    Semantics::

        g, u = W1_s · x[t], W3_s · x[t]       each plus its own delta
        h_s  = gammas[t, s] · silu(g) · u
        y[t] = Σ_s W2_s · h_s + scaling · B_s · (A_s · h_s)

    Args:
        x: [T, H].
        w13: [S, 2F, H], W1 (gate) above W3 (up).
        w2: [H, S·F], the W2_s side by side.
        gammas: [T, S] fp32.
        lora: the slots of the three sites; None: no deltas.
        adapters: the adapter of each token.

    Returns:
        [T, H] in the dtype of x.
    """
    num_experts, double_width, _ = w13.shape
    gate_up = functional.linear(x, w13.flatten(0, 1)).view(-1, num_experts, double_width)
    if lora is not None:
        for slots, columns in _halves(lora, double_width // 2):
            for adapter, rows in adapters.groups:
                _add_gated(gate_up[..., columns], x, slots[adapter], rows)
    hidden = (silu_and_mul(gate_up) * gammas[..., None]).to(x.dtype)
    y = functional.linear(hidden.flatten(1), w2)
    if lora is not None:
        for adapter, rows in adapters.groups:
            _add_down(y, hidden, lora.down[adapter], rows)
    return y


def _halves(lora: GatedLora, width: int) -> tuple[tuple[LoraSlots, slice], ...]:
    return (lora.gate, slice(0, width)), (lora.up, slice(width, None))


def _add_gated(y: Tensor, x: Tensor, pair: LoraPair | None, rows: slice | Tensor) -> None:
    """Add the gate or up delta of one adapter to y [T, S, F], in place."""
    if pair is None:
        return
    z = shrink(x[rows], pair.a.flatten(0, 1)).view(-1, *pair.a.shape[:2])
    for expert in range(y.shape[1]):
        own = z[:, expert if len(pair.a) > 1 else 0]
        add_rows(y[:, expert], rows, expand(own, pair.expert_b(expert), pair.scaling))


def _add_down(y: Tensor, hidden: Tensor, pair: LoraPair | None, rows: slice | Tensor) -> None:
    """Add the down delta of one adapter to y [T, H], in place."""
    if pair is None:
        return
    z = [shrink(hidden[rows, s], pair.expert_a(s)) for s in range(hidden.shape[1])]
    if len(pair.b) == 1:
        z = [torch.stack(z).sum(0)]
    for expert, values in enumerate(z):
        add_rows(y, rows, expand(values, pair.expert_b(expert), pair.scaling))


def shared_experts_reference(
    x: Tensor,
    w13: Tensor,
    w2: Tensor,
    gammas: Tensor,
    lora: GatedLora | None,
    adapters: TokenAdapters,
) -> Tensor:
    """Specify `shared_experts`, one token and expert after the other."""
    y = torch.zeros(x.shape, device=x.device)
    width = w13.shape[1] // 2
    for t, adapter in enumerate(adapters.ids.tolist()):
        token = x[t].float()
        for s in range(w13.shape[0]):
            gate, up = w13[s, :width].float() @ token, w13[s, width:].float() @ token
            if lora is not None:
                gate += delta_reference(lora.gate, adapter, token, s)
                up += delta_reference(lora.up, adapter, token, s)
            hidden = gammas[t, s] * gate * torch.sigmoid(gate) * up
            y[t] += w2[:, s * width : (s + 1) * width].float() @ hidden
            if lora is not None:
                y[t] += delta_reference(lora.down, adapter, hidden, s)
    return y.to(x.dtype)
