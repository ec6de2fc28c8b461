"""The base model as SGLang reads its config.json. No rules here.

The trap: SGLang knows the raw spelling alone. Keys of the transformers spelling are ignored
without a word, and a size that is missing takes a default of SGLang's own, which is no Inkling's.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_runtime.adapter.model_spec import MULTIMODAL_TYPES, ModelSpec, parse_model_spec
from inkling_runtime.errors import InklingError

_DEFAULTS: dict[str, Any] = {
    "d_rel": 16,
    "dense_mlp_idx": 0,
    "hidden_size": 1536,
    "intermediate_size": 768,
    "local_layer_ids": [],
    "n_routed_experts": 0,
    "n_shared_experts": 0,
    "num_attention_heads": 12,
    "num_hidden_layers": 16,
    "num_key_value_heads": 4,
    "vocab_size": 201024,
}
"""Keys of `text_config` → what SGLang takes where one is missing."""

IGNORED = {
    "layer_types": "local_layer_ids",
    "mlp_layer_types": "dense_mlp_idx",
    "moe_intermediate_size": "dense_intermediate_size",
}
"""Keys of the transformers spelling that SGLang does not see → the raw key that it looks for."""


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the part of a config that holds the text model's sizes; None if it is no object."""
    if config.get("model_type") not in MULTIMODAL_TYPES:
        return config
    text = config.get("text_config") or {}
    return text if isinstance(text, dict) else None


def has_sink(spec: ModelSpec) -> bool:
    """Return whether the shared experts are experts to SGLang, not one dense MLP."""
    return bool(spec.num_shared_experts and spec.config.get("shared_expert_sink"))


def served_spec(subject: LaunchSubject) -> ModelSpec | None:
    """Return the sizes that SGLang takes for the model; None where they are not known or unusable.

    Where config.json says all in the raw spelling, these are the model's own.
    """
    given = text_config(subject.model.config)
    if not subject.model.config or given is None or not subject.is_inkling:
        return None
    text = {**_DEFAULTS, **{key: v for key, v in given.items() if key not in IGNORED}}
    if text["local_layer_ids"] is None:
        text["local_layer_ids"] = []
    if text.get("dense_intermediate_size") is None:
        text["dense_intermediate_size"] = text["intermediate_size"]
    if given.get("padded_vocab_size") is not None:
        text["unpadded_vocab_size"] = text["vocab_size"]
    counts = {key: text[key] for key in ("n_routed_experts", "n_shared_experts")}
    text |= {key: 1 for key, count in counts.items() if count == 0}
    try:
        spec = parse_model_spec({"model_type": MULTIMODAL_TYPES[0], "text_config": text})
    except InklingError:
        return None
    routed, shared = (spec.num_experts, spec.num_shared_experts)
    return replace(
        spec,
        num_experts=routed if counts["n_routed_experts"] else 0,
        num_shared_experts=shared if counts["n_shared_experts"] else 0,
    )
