"""The modules of an Inkling that vLLM can adapt, with their sizes, as vLLM reads the config.

Not the checkpoint's own view (`ModelSpec.sites`): vLLM knows sliding layers by `local_layer_ids`
alone and dense ones by `dense_mlp_idx` alone, so for some configs the sizes differ from the
model's true ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inkling_runtime.adapter.model_spec import ModelSpec

QKVR = ("wq_du", "wk_dv", "wv_dv", "wr_du")
"""The slices of vLLM's fused projection `qkvr`."""
W13 = ("w1", "w3")
"""The slices of the shared experts' fused projection `w13`."""
PARENTS = {**dict.fromkeys(QKVR, "qkvr"), **dict.fromkeys(W13, "w13")}
"""Slice → the module that holds it."""
STACKS = ("w1", "w2", "w3")
"""The routed experts of a layer as stacks, under `experts`."""
EXPERT_STACKS = tuple(f"experts.{name}" for name in STACKS)
PROJECTIONS = ("gate_proj", "down_proj", "up_proj")
"""The parts of one routed expert, under `experts.N`."""
HEAD = "lm_head"


@dataclass(frozen=True, slots=True)
class Slot:
    """The widths of a module's two factors: A is [rank, inputs], B is [outputs, rank]."""

    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True)
class AdaptableModules:
    """What an adapter can reach: plain modules and slices by path, and stacks of experts."""

    slots: Mapping[str, Slot]
    expert_layers: Mapping[str, tuple[int, Slot]] = field(default_factory=dict)
    """Path of a layer's routed experts → their number, and the slot of gate and up."""
    has_dense: bool = True
    has_experts: bool = True


def adaptable_modules(spec: ModelSpec) -> AdaptableModules:
    """Return the modules of a model that vLLM can adapt, by their paths in vLLM."""
    hidden = spec.hidden_size
    slots: dict[str, Slot] = {}
    experts: dict[str, tuple[int, Slot]] = {}
    local = set(spec.config.get("local_layer_ids") or ())
    dense = spec.config.get("dense_mlp_idx") or 0
    for layer in range(spec.num_layers):
        prefix = f"model.layers.{layer}"
        slots.update(_attention(spec, f"{prefix}.attn", layer in local))
        if layer < dense:
            slots[f"{prefix}.mlp.gate_up_proj"] = Slot(hidden, 2 * spec.dense_width)
            slots[f"{prefix}.mlp.down_proj"] = Slot(spec.dense_width, hidden)
            continue
        width = spec.num_shared_experts * spec.expert_width
        for name in W13:
            slots[f"{prefix}.mlp.sink_experts.{name}"] = Slot(hidden, width)
        slots[f"{prefix}.mlp.sink_experts.w2"] = Slot(width, hidden)
        experts[f"{prefix}.mlp.experts"] = (spec.num_experts, Slot(hidden, spec.expert_width))
    slots[HEAD] = Slot(hidden, spec.vocab_size)
    return AdaptableModules(slots, experts, dense > 0, bool(experts))


def kv_head_counts(spec: ModelSpec) -> tuple[int, ...]:
    """Return the numbers of K/V heads that occur in the layers as vLLM builds them."""
    local = set(spec.config.get("local_layer_ids") or ())
    kinds = {layer in local for layer in range(spec.num_layers)}
    return tuple(sorted({_heads(spec.config, is_local)[1] for is_local in kinds}))


def head_counts(spec: ModelSpec) -> tuple[int, ...]:
    """Return the numbers of query heads that occur in the layers as vLLM builds them."""
    local = set(spec.config.get("local_layer_ids") or ())
    kinds = {layer in local for layer in range(spec.num_layers)}
    return tuple(sorted({_heads(spec.config, is_local)[0] for is_local in kinds}))


def _attention(spec: ModelSpec, prefix: str, is_local: bool) -> dict[str, Slot]:
    heads, kv_heads, head_dim = _heads(spec.config, is_local)
    hidden = spec.hidden_size
    rows = (heads * head_dim, kv_heads * head_dim, kv_heads * head_dim, heads * spec.d_rel)
    slots = {f"{prefix}.{name}": Slot(hidden, out) for name, out in zip(QKVR, rows, strict=True)}
    slots[f"{prefix}.wo_ud"] = Slot(heads * head_dim, hidden)
    return slots


def _heads(config: Mapping[str, Any], is_local: bool) -> tuple[int, int, int]:
    """Return the query heads, the K/V heads and the width of a head of one kind of layer."""
    heads = config.get("num_attention_heads") or 12
    kv_heads = config.get("num_key_value_heads") or 4
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    if not is_local:
        return heads, kv_heads, head_dim
    return (
        config.get("swa_num_attention_heads") or heads,
        config.get("swa_num_key_value_heads") or kv_heads,
        config.get("swa_head_dim") or head_dim,
    )
