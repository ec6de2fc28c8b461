"""The model's parameters: names, shapes, and in which precision they are held.

The names are ours, below `layers.N.` for a layer. Whatever layout a checkpoint has, its tensors
end here: q, k, v and r in one weight, gate above up (contiguous), shared experts side by side.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from inkling_runtime.adapter.model_spec import LayerSpec, ModelSpec


class Held(Enum):
    """The precision that a parameter is held in."""

    MODEL = "the model's dtype"
    FP32 = "fp32, as read"
    ROUNDED = "fp32, but rounded to the model's dtype first"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A shape in the letters of `dimensions`, and a precision."""

    shape: str
    held: Held = Held.MODEL


MODEL_PARAMETERS: Mapping[str, Parameter] = {
    "embed": Parameter("Vp H"),
    "embed_norm": Parameter("H"),
    "norm": Parameter("H"),
    "head": Parameter("V H"),
}

LAYER_PARAMETERS: Mapping[str, Parameter] = {
    "attn_norm": Parameter("H"),
    "attn.wqkvr": Parameter("Q+K+K+R H"),
    "attn.wo": Parameter("H Q"),
    "attn.q_norm": Parameter("d"),
    "attn.k_norm": Parameter("d"),
    "attn.profiles": Parameter("r X"),
    "attn.k_conv": Parameter("W K", Held.FP32),
    "attn.v_conv": Parameter("W K", Held.FP32),
    "attn_conv": Parameter("W H", Held.FP32),
    "mlp_norm": Parameter("H"),
    "mlp_conv": Parameter("W H", Held.FP32),
}

DENSE_PARAMETERS: Mapping[str, Parameter] = {
    "mlp.w13": Parameter("2*D H"),
    "mlp.w2": Parameter("H D"),
    "mlp.global_scale": Parameter("1"),
}

SPARSE_PARAMETERS: Mapping[str, Parameter] = {
    "mlp.gate.weight": Parameter("E+S H", Held.ROUNDED),
    "mlp.gate.bias": Parameter("E", Held.FP32),
    "mlp.gate.global_scale": Parameter("1", Held.FP32),
    "mlp.experts.w13": Parameter("E 2*F H"),
    "mlp.experts.w2": Parameter("E H F"),
    "mlp.shared.w13": Parameter("S 2*F H"),
    "mlp.shared.w2": Parameter("H S*F"),
}


def dimensions(spec: ModelSpec, layer: LayerSpec | None = None) -> dict[str, int]:
    """Return what each letter of a shape stands for, in the model or in one of its layers.

    H hidden, Vp and V vocabulary with and without padding; in a layer Q, K and R the widths of
    queries, keys (and values) and relatives, d head, r relative, X bias extent, W taps, D dense
    width, E routed and S shared experts, F expert width.
    """
    letters = {"H": spec.hidden_size, "Vp": spec.vocab_size, "V": spec.unpadded_vocab_size}
    if layer is None:
        return letters
    return letters | {
        "Q": layer.num_heads * layer.head_dim,
        "K": layer.num_kv_heads * layer.head_dim,
        "R": layer.num_heads * spec.d_rel,
        "d": layer.head_dim,
        "r": spec.d_rel,
        "X": layer.rel_extent,
        "W": spec.conv_kernel_size,
        "D": spec.dense_width,
        "E": spec.num_experts,
        "S": spec.num_shared_experts,
        "F": spec.expert_width,
    }


def parse_size(expression: str, letters: Mapping[str, int]) -> int:
    """Return the value of a size like `Q+K`, `2*F` or `1`."""
    total = 0
    for term in expression.split("+"):
        product = 1
        for factor in term.split("*"):
            product *= letters[factor] if factor in letters else int(factor)
        total += product
    return total


def parse_shape(shape: str, letters: Mapping[str, int]) -> tuple[int, ...]:
    """Return the sizes of a shape like `E 2*F H`."""
    return tuple(parse_size(expression, letters) for expression in shape.split())


def layer_parameters(layer: LayerSpec) -> dict[str, Parameter]:
    """Return the parameters of a layer, by their names below `layers.N.`."""
    return {**LAYER_PARAMETERS, **(DENSE_PARAMETERS if layer.is_dense else SPARSE_PARAMETERS)}
