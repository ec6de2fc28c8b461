"""The shared experts of a layer: always on, scaled by the router's gammas.

Laid side by side the S experts are one wide MLP, which takes two products instead of 2·S. The
gammas multiply the activation, so the down delta of an adapter sees them too.
"""

import torch
from torch import Tensor
from torch.nn import functional

from inkling_runtime.ops.backend import Backend, backend_for
from inkling_runtime.ops.expert_shrink import GatedShrunk, expert_shrink
from inkling_runtime.ops.linear import linear
from inkling_runtime.ops.lora_pair import LoraPair, add_rows, delta_reference, expand, shrink
from inkling_runtime.ops.lora_slots import GatedLora, LoraPart, LoraSlots, pair_of
from inkling_runtime.ops.native.experts import can_take, run_experts
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.silu_and_mul import silu_and_mul
from inkling_runtime.ops.token_adapters import TokenAdapters

MAX_NATIVE_TOKENS = 16
"""Above, torch's matrix product is faster."""


def shared_experts(
    x: Tensor,
    w13: Tensor,
    w2: Tensor,
    gammas: Tensor,
    lora: GatedLora | None,
    adapters: TokenAdapters,
    shrunk: GatedShrunk | None = None,
) -> tuple[Tensor, PendingDelta | None]:
    """Return the sum of the shared experts, and what is still to be added.

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
        shrunk: what `expert_shrink` returned for these experts; None: not taken ahead.

    Returns:
        y [T, H] in the dtype of x, and a delta that the reader of y has still to add, None where
        y is complete.
    """
    backend = backend_for(x)
    if backend is Backend.TRITON:
        return _experts_triton(x, w13, w2, gammas, lora, adapters, shrunk)
    is_small = x.shape[0] <= MAX_NATIVE_TOKENS
    is_native = backend is Backend.NATIVE and is_small and can_take(x, (w13, w2), lora)
    run = _experts_native if is_native else _experts_torch
    return run(x, w13, w2, gammas, lora, adapters), None


def _experts_native(
    x: Tensor,
    w13: Tensor,
    w2: Tensor,
    gammas: Tensor,
    lora: GatedLora | None,
    adapters: TokenAdapters,
) -> Tensor:
    strides = (w13.shape[1] // 2, w2.shape[1])
    return run_experts(x, w13, w2, strides, None, gammas, lora, adapters)


def _experts_torch(
    x: Tensor,
    w13: Tensor,
    w2: Tensor,
    gammas: Tensor,
    lora: GatedLora | None,
    adapters: TokenAdapters,
) -> Tensor:
    num_experts, double_width, _ = w13.shape
    gate_up = linear(x, w13.flatten(0, 1)).view(-1, num_experts, double_width)
    if lora is not None:
        for slots, columns in _halves(lora, double_width // 2):
            for adapter, rows in adapters.groups:
                _add_gated(gate_up[..., columns], x, pair_of(slots, adapter), rows)
    hidden = (silu_and_mul(gate_up) * gammas[..., None]).to(x.dtype)
    y = linear(hidden.flatten(1), w2)
    if lora is not None:
        for adapter, rows in adapters.groups:
            _add_down(y, hidden, pair_of(lora.down, adapter), rows)
    return y


def _experts_triton(
    x: Tensor,
    w13: Tensor,
    w2: Tensor,
    gammas: Tensor,
    lora: GatedLora | None,
    adapters: TokenAdapters,
    shrunk: GatedShrunk | None,
) -> tuple[Tensor, PendingDelta | None]:
    from inkling_runtime.ops.kernels.shared_experts import activate_shared

    num_experts = w13.shape[0]
    if not adapters.groups:
        lora = None
    if lora and shrunk is None:
        _, shrunk = expert_shrink(x, gammas, None, lora, num_experts, adapters)
    gate_up = functional.linear(x, w13.flatten(0, 1)).view(-1, num_experts, w13.shape[1])
    parts = num_experts if lora and lora.down and lora.down.has_own_b else 1
    hidden, down = activate_shared(gate_up, gammas.contiguous(), lora, shrunk, adapters.ids, parts)
    y = functional.linear(hidden, w2)
    if lora is None or lora.down is None or down is None:
        return y, None
    width = down.shape[2] // parts
    return y, PendingDelta(
        down,
        tuple(LoraPart(0, x.shape[1], lora.down, expert) for expert in range(parts)),
        tuple(width * expert for expert in range(parts)),
        adapters,
    )


def _halves(lora: GatedLora, width: int) -> tuple[tuple[LoraSlots | None, slice], ...]:
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
                gate += delta_reference(pair_of(lora.gate, adapter), token, s)
                up += delta_reference(pair_of(lora.up, adapter), token, s)
            hidden = gammas[t, s] * gate * torch.sigmoid(gate) * up
            y[t] += w2[:, s * width : (s + 1) * width].float() @ hidden
            if lora is not None:
                y[t] += delta_reference(pair_of(lora.down, adapter), hidden, s)
    return y.to(x.dtype)
