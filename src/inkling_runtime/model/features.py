"""Config switches that would change the computation to one that is not implemented.

Released models leave them at the values below; a config that says otherwise is refused by name,
because running it anyway would give plausible wrong numbers.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any

from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.errors import InklingError

_EXPECTED: Mapping[str, Any] = {
    "hidden_act": "silu",
    "gate_activation": "sigmoid",
    "norm_after_topk": True,
    "shared_expert_sink": True,
    "q_bias": False,
    "o_bias": False,
    "tie_word_embeddings": False,
    "use_embed_norm": True,
    "use_sconv": True,
    "use_global_scale": True,
    "use_gate_bias": True,
    "final_logit_softcapping": None,
}
"""Values that the forward pass implements; absent and null mean the same."""


def require_supported(spec: ModelSpec, config: Mapping[str, Any]) -> None:
    """Require that a model asks for nothing that the forward pass does not do.

    Args:
        spec: its sizes and the text part of its config.
        config: its whole config.

    Raises:
        InklingError: a switch has another value than the one implemented.
    """
    for (key, expected), values in product(_EXPECTED.items(), (spec.config, config)):
        value = values.get(key)
        if value is not None and value != expected:
            wanted = "no value" if expected is None else f"`{_spell(expected)}`"
            raise InklingError(
                f"the model's config has {key} `{_spell(value)}`, which is not supported; "
                f"expected {wanted}"
            )
    for layer in spec.layers:
        if layer.num_heads % layer.num_kv_heads:
            raise InklingError(
                f"layer {layer.index} has {layer.num_heads} query heads, expected a multiple of "
                f"its {layer.num_kv_heads} key heads"
            )
    if spec.num_experts_per_token > spec.num_experts:
        raise InklingError(
            f"the model's config selects {spec.num_experts_per_token} experts per token of "
            f"{spec.num_experts}, expected at most all"
        )


def _spell(value: Any) -> str:
    """Return a value as JSON spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
