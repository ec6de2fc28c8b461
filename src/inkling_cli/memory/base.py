"""The base model's weights on one rank: an estimate from config.json.

Exact for the text model in bf16; towers for images and audio, draft layers, and what a backend
pads or repacks of quantised weights are not in it. Only routed experts may be quantised.
"""

from dataclasses import dataclass
from enum import StrEnum

from inkling_cli.memory.setup import Setup, divided
from inkling_runtime.adapter.model_spec import LayerSpec, ModelSpec


class WeightKind(StrEnum):
    """The parts of the base model, as the table names them."""

    EMBEDDING = "embedding and head"
    ATTENTION = "attention"
    DENSE = "dense MLP"
    ROUTED = "routed experts"
    SHARED = "shared experts"
    REST = "router, norms, convolutions"


@dataclass(frozen=True, slots=True)
class BasePart:
    """One part of the base weights on one rank."""

    kind: WeightKind
    nbytes: int


def base_parts(spec: ModelSpec, setup: Setup) -> tuple[BasePart, ...]:
    """Return the weights on one rank that holds the layers of `spec`."""
    sizes = dict.fromkeys(WeightKind, 0)
    ranks, hidden = setup.parallel.tensor, spec.hidden_size
    head = divided(spec.vocab_size, ranks) * hidden
    embedding = spec.vocab_size * hidden if setup.engine == "vllm" else head
    sizes[WeightKind.EMBEDDING] = 2 * (embedding + head)
    sizes[WeightKind.REST] = 2 * hidden * (2 if spec.config.get("use_embed_norm") else 1)
    for layer in spec.layers:
        sizes[WeightKind.ATTENTION] += 2 * _attention(spec, layer, setup.parallel.attention)
        sizes[WeightKind.REST] += 2 * _small_weights(spec, setup, layer)
        if layer.is_dense:
            sizes[WeightKind.DENSE] += 2 * 3 * hidden * divided(spec.dense_width, ranks)
            continue
        experts = divided(spec.num_experts, setup.parallel.expert)
        width = divided(spec.expert_width, setup.parallel.expert_tensor)
        routed = experts * 3 * hidden * width
        sizes[WeightKind.ROUTED] += int(routed * setup.weights.bytes_per_weight)
        shared = 3 * hidden * divided(spec.num_shared_experts * spec.expert_width, ranks)
        sizes[WeightKind.SHARED] += 2 * shared
        sizes[WeightKind.REST] += _router_bytes(spec)
    if spec.config.get("use_global_scale"):
        sizes[WeightKind.REST] += 2 * sum(layer.is_dense for layer in spec.layers)
    return tuple(BasePart(kind, nbytes) for kind, nbytes in sizes.items() if nbytes)


def _attention(spec: ModelSpec, layer: LayerSpec, ranks: int) -> int:
    query = layer.num_heads * layer.head_dim
    key = max(layer.num_kv_heads, ranks) * layer.head_dim
    rows = divided(query + 2 * key + layer.num_heads * spec.d_rel, ranks)
    return spec.hidden_size * (rows + divided(query, ranks))


def _small_weights(spec: ModelSpec, setup: Setup, layer: LayerSpec) -> int:
    """Return norms, convolutions and the relative position's projection of a layer."""
    hidden = spec.hidden_size
    norms = 2 * hidden + 2 * layer.head_dim
    key = max(layer.num_kv_heads // setup.parallel.attention, 1) * layer.head_dim
    is_divided = setup.engine == "vllm" or setup.has_sharded_conv
    channels = 2 * key + 2 * (divided(hidden, setup.parallel.tensor) if is_divided else hidden)
    return norms + channels * spec.conv_kernel_size + spec.d_rel * layer.rel_extent


def _router_bytes(spec: ModelSpec) -> int:
    """Return the router of a layer: its weight padded to eight rows, bias and scale in fp32."""
    rows = 8 * divided(spec.num_experts + spec.num_shared_experts, 8)
    bias = 4 * spec.num_experts if spec.config.get("use_gate_bias") else 0
    return 2 * rows * spec.hidden_size + bias + (4 if spec.config.get("use_global_scale") else 0)
