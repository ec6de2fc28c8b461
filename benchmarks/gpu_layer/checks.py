"""Every op with a Triton kernel against its reference in float64, for a decode and a mixed step.

What is compared is the output with adapters; that rows without an adapter keep their bits is
compared exactly. Tolerances are relative to the largest wanted value.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_layer.float64 import float64
from gpu_layer.sizes import Setup
from inkling_runtime.adapter.sites import SiteKind
from inkling_runtime.ops.backend import Backend, use_backend
from inkling_runtime.ops.conv_plan import ConvPlan
from inkling_runtime.ops.key_layout import KeyLayout
from inkling_runtime.ops.lora_expand import expand_pending
from inkling_runtime.ops.lora_linear import lora_linear, lora_linear_deferred, lora_linear_reference
from inkling_runtime.ops.lora_slots import GatedLora
from inkling_runtime.ops.nvfp4 import Nvfp4Weight
from inkling_runtime.ops.pending_delta import PendingDelta
from inkling_runtime.ops.qkvr_prologue import (
    PrologueState,
    qkvr_prologue,
    qkvr_prologue_reference,
)
from inkling_runtime.ops.relative_attention import (
    AttentionRule,
    relative_attention,
    relative_attention_reference,
)
from inkling_runtime.ops.rms_norm import (
    add_rms_norm,
    add_rms_norm_reference,
    rms_norm,
    rms_norm_reference,
)
from inkling_runtime.ops.routed_experts import routed_experts, routed_experts_reference
from inkling_runtime.ops.router import route_tokens, route_tokens_reference
from inkling_runtime.ops.segments import Segments
from inkling_runtime.ops.shared_experts import shared_experts, shared_experts_reference
from inkling_runtime.ops.short_conv import short_conv, short_conv_reference
from inkling_runtime.ops.silu_and_mul import silu_and_mul, silu_and_mul_reference
from inkling_runtime.ops.token_adapters import TokenAdapters

TOLERANCES = {torch.bfloat16: 1.2e-2, torch.float16: 2e-3, torch.float32: 2e-5}


@dataclass(frozen=True, slots=True)
class Check:
    """How far an op is from its reference."""

    name: str
    error: float
    """Of the largest wanted value."""
    tolerance: float

    @property
    def is_good(self) -> bool:
        """Whether it is near enough; NaN is not."""
        return self.error <= self.tolerance


@dataclass(frozen=True, slots=True)
class Case:
    """Tokens of several sequences, with adapters 0, 1 and none in turn."""

    name: str
    setup: Setup
    lengths: tuple[int, ...]

    @property
    def segments(self) -> Segments:
        """The boundaries of the sequences."""
        return Segments.from_lengths(self.lengths, self.setup.device)

    @property
    def adapters(self) -> TokenAdapters:
        """The adapter of each token, the same within a sequence."""
        ids = [i % 3 - 1 for i, length in enumerate(self.lengths) for _ in range(length)]
        return TokenAdapters.from_ids(ids, self.setup.device)

    def randn(self, *shape: int) -> Tensor:
        """Return random values in the model's dtype; the first size is the tokens'."""
        generator = torch.Generator(self.setup.device).manual_seed(sum(shape))
        values = torch.empty(sum(self.lengths), *shape, device=self.setup.device)
        return values.normal_(generator=generator).to(self.setup.dtype)

    def plan(self) -> ConvPlan:
        """Return the plan of new sequences."""
        count = len(self.lengths)
        return ConvPlan.make(self.segments, [0] * count, list(range(1, count + 1)))


def run_checks(case: Case) -> Iterator[Check]:
    """Yield the checks of every op."""
    parts: list[Callable[[Case], Iterator[tuple[str, Tensor, Tensor]]]] = [
        _norms,
        _linears,
        _convolutions,
        _prologue,
        _attention,
        _router,
        _shared,
        _routed,
    ]
    for part in parts:
        for name, got, want in part(case):
            scale = want.double().abs().max().item() or 1.0
            error = (got.double() - want.double()).abs().max().item() / scale
            is_exact = name.endswith("(bits)")
            tolerance = 0.0 if is_exact else TOLERANCES[case.setup.dtype]
            yield Check(f"{name}, {case.name}", error, tolerance)


Compared = Iterator[tuple[str, Tensor, Tensor]]


def _norms(case: Case) -> Compared:
    hidden, width = case.setup.spec.hidden_size, case.setup.spec.expert_width
    x, residual = case.randn(hidden), case.randn(hidden).flip(0)
    weight, eps = case.setup.model.norm.weight, case.setup.spec.rms_norm_eps
    gate_up = case.randn(2 * width)
    with use_backend(Backend.TRITON):
        got = rms_norm(x, weight, eps)
        summed = add_rms_norm(x, residual, weight, eps)
        hidden_values = silu_and_mul(gate_up, 0.7)
    with float64():
        yield "rms_norm", got, rms_norm_reference(x.double(), weight, eps)
        wanted = add_rms_norm_reference(x.double(), residual.double(), weight, eps)
        for name, one, other in zip(("normed", "sum"), summed, wanted, strict=True):
            yield f"add_rms_norm ({name})", one, other
        yield "silu_and_mul", hidden_values, silu_and_mul_reference(gate_up.double(), 0.7)


def _linears(case: Case) -> Compared:
    linear = case.setup.model.layers[0].attention.qkvr
    parts = linear._parts(case.setup.adapters.layers[0], case.adapters)
    x = case.randn(case.setup.spec.hidden_size)
    with use_backend(Backend.TRITON):
        got = lora_linear(x, linear.weight, parts, case.adapters)
        base = lora_linear(x, linear.weight, [], case.adapters)
    with float64():
        want = lora_linear_reference(x.double(), linear.weight, parts, case.adapters)
    yield "lora_linear", got, want
    none = case.adapters.ids < 0
    yield "lora_linear without adapter (bits)", got[none], base[none]


def _deferred(case: Case, x: Tensor) -> tuple[Tensor, PendingDelta | None, Tensor]:
    """Return the output projection, what is pending of it, and all of it in float64."""
    linear = case.setup.model.layers[0].attention.output
    parts = linear._parts(case.setup.adapters.layers[0], case.adapters)
    with use_backend(Backend.TRITON):
        y, pending = lora_linear_deferred(x, linear.weight, parts, case.adapters)
    with float64():
        want = lora_linear_reference(x.double(), linear.weight, parts, case.adapters)
    return y, pending, want


def _convolutions(case: Case) -> Compared:
    layer, cache = case.setup.model.layers[0], case.setup.cache.layers[0]
    heads = case.setup.spec.layers[0]
    y, pending, complete = _deferred(case, case.randn(heads.num_heads * heads.head_dim))
    residual = case.randn(case.setup.spec.hidden_size)
    state, wanted_state = cache.conv.attn.clone(), cache.conv.attn.double()
    with use_backend(Backend.TRITON):
        deltas = () if pending is None else (pending,)
        got = short_conv(
            y.clone(), layer.attn_conv, state, case.plan(), residual=residual, pending=deltas
        )
    with float64():
        want = short_conv_reference(
            complete, layer.attn_conv, wanted_state, case.plan(), residual=residual.double()
        )
    yield "short_conv with a delta", got, want
    yield "short_conv's state", state, wanted_state


def _prologue(case: Case) -> Compared:
    attention, cache = case.setup.model.layers[0].attention, case.setup.cache.layers[0]
    parts = attention.qkvr._parts(case.setup.adapters.layers[0], case.adapters)
    x = case.randn(case.setup.spec.hidden_size)
    slots = torch.arange(len(x), device=x.device)

    def state(dtype: torch.dtype) -> PrologueState:
        return PrologueState(
            cache.conv.k.to(dtype, copy=True),
            cache.conv.v.to(dtype, copy=True),
            *(torch.zeros_like(keys, dtype=dtype) for keys in (cache.keys, cache.values)),
        )

    got_state, want_state = state(x.dtype), state(torch.float64)
    with use_backend(Backend.TRITON):
        y, pending = lora_linear_deferred(x, attention.qkvr.weight, parts, case.adapters)
        got = qkvr_prologue(
            y, pending, attention.shape, attention.prologue, got_state, case.plan(), slots
        )
    with float64():
        complete = lora_linear_reference(x.double(), attention.qkvr.weight, parts, case.adapters)
        want = qkvr_prologue_reference(
            complete, None, attention.shape, attention.prologue, want_state, case.plan(), slots
        )
    yield "qkvr_prologue, q", got[0], want[0]
    yield "qkvr_prologue, r", got[1], want[1]
    rows = slice(0, len(x))
    yield "qkvr_prologue, k", *(s.key_cache.flatten(0, 1)[rows] for s in (got_state, want_state))
    yield "qkvr_prologue, v", *(s.value_cache.flatten(0, 1)[rows] for s in (got_state, want_state))


def _attention(case: Case) -> Compared:
    setup, spec = case.setup, case.setup.spec.layers[0]
    cache, count = setup.cache.layers[0], len(case.lengths)
    held = [min(setup.context, length + setup.context // 2) for length in case.lengths]
    per = -(-setup.context // cache.keys.shape[1])
    table = torch.arange(count * per, device=setup.device).view(count, per).flip(1)
    numbers = torch.tensor([[0] * count, held], dtype=torch.int32, device=setup.device)
    layout = KeyLayout(
        slot_mapping=table[:, 0],
        block_table=table,
        first_blocks=(None,) * count,
        starts=(0,) * count,
        lengths=tuple(held),
        starts_device=numbers[0],
        lengths_device=numbers[1],
    )
    q = case.randn(spec.num_heads, spec.head_dim)
    r = case.randn(spec.num_heads, setup.spec.d_rel)
    profiles = setup.model.layers[0].attention.profiles
    rules = {
        "sliding": AttentionRule(window=setup.spec.sliding_window),
        "global": AttentionRule(log_scaling_floor=setup.context // 3, log_scaling_alpha=0.1),
    }
    for name, rule in rules.items():
        rest = (profiles, cache.keys, cache.values, case.segments, layout, rule)
        with use_backend(Backend.TRITON):
            got = relative_attention(q, r, *rest)
        with float64():
            want = relative_attention_reference(q.double(), r.double(), *rest)
        yield f"relative_attention, {name}", got, want


def _router(case: Case) -> Compared:
    moe = case.setup.model.layers[0].mlp
    x = case.randn(case.setup.spec.hidden_size)
    rest = (moe.gate, moe.gate_bias, moe.top_k, moe.gate_scale)
    with use_backend(Backend.TRITON):
        got = route_tokens(x, *rest)
    with float64():
        want = route_tokens_reference(x.double(), *rest)
    for name, one, other in zip(("ids (bits)", "weights", "gammas"), got, want, strict=True):
        yield f"route_tokens, {name}", one, other


def _gated(case: Case, group: str) -> GatedLora:
    sites = case.setup.adapters.layers[0]
    return GatedLora(*(sites[SiteKind[f"{group}_{name}"]] for name in ("GATE", "UP", "DOWN")))


def _completed(result: tuple[Tensor, PendingDelta | None]) -> Tensor:
    y, pending = result
    return expand_pending(y.clone(), pending)


def _shared(case: Case) -> Compared:
    moe, lora = case.setup.model.layers[0].mlp, _gated(case, "SHARED")
    x = case.randn(case.setup.spec.hidden_size)
    gammas = case.randn(moe.shared_w13.shape[0]).float().softmax(1)
    rest = (moe.shared_w13, moe.shared_w2, gammas)
    with use_backend(Backend.TRITON):
        got = _completed(shared_experts(x, *rest, lora, case.adapters))
        base, _ = shared_experts(x, *rest, None, case.adapters)
    with float64():
        want = shared_experts_reference(x.double(), *rest, lora, case.adapters)
    yield "shared_experts", got, want
    none = case.adapters.ids < 0
    yield "shared_experts without adapter (bits)", got[none], base[none]


def _routed(case: Case) -> Compared:
    moe, lora = case.setup.model.layers[0].mlp, _gated(case, "ROUTED")
    x = case.randn(case.setup.spec.hidden_size)
    scores = case.randn(len(moe.w13)).float()
    ids = scores.topk(moe.top_k).indices
    # Several tokens of the batch share experts.
    ids[::2] = ids[0]
    weights = scores[:, : moe.top_k].softmax(1).contiguous()
    for name, (w13, w2) in (("", (moe.w13, moe.w2)), (" NVFP4", _packed(case))):
        few = ids % w13.shape[0]
        with use_backend(Backend.TRITON):
            got = _completed(routed_experts(x, w13, w2, few, weights, lora, case.adapters))
            base, _ = routed_experts(x, w13, w2, few, weights, None, case.adapters)
        with float64():
            want = routed_experts_reference(x.double(), w13, w2, few, weights, lora, case.adapters)
        yield f"routed_experts{name}", got, want
        none = case.adapters.ids < 0
        yield f"routed_experts{name} without adapter (bits)", got[none], base[none]


def _packed(case: Case) -> tuple[Nvfp4Weight, Nvfp4Weight]:
    """Return packed weights of as many experts, with random bits."""
    moe = case.setup.model.layers[0].mlp

    def weight(shape: torch.Size) -> Nvfp4Weight:
        experts, rows, columns = shape
        device = case.setup.device
        packed = torch.randint(256, (experts, rows, columns // 2), dtype=torch.uint8, device=device)
        scales = torch.rand(experts, rows, columns // 16, device=device) + 0.5
        scales2 = torch.full((experts,), 0.3 * columns**-0.5, device=device)
        return Nvfp4Weight(packed, scales.to(torch.float8_e4m3fn), scales2)

    return weight(moe.w13.shape), weight(moe.w2.shape)
