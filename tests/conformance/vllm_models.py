"""Base models for launches that vLLM itself has judged: the small test model with one change."""

from typing import Any

from checks.adapter_folders import DENSE, INNER, MODEL_CONFIG


def _text(**changes: Any) -> dict[str, Any]:
    text = {**MODEL_CONFIG["text_config"], **changes}
    text = {key: value for key, value in text.items() if value is not ...}
    return {**MODEL_CONFIG, "text_config": text}


_TRANSFORMERS_TEXT = _text(
    dense_intermediate_size=...,
    intermediate_size=DENSE,
    moe_intermediate_size=INNER,
    sconv_kernel_size=...,
    conv_kernel_size=4,
)

MODEL_VARIANTS: dict[str, dict[str, Any]] = {
    "text-model": {
        "architectures": ["InklingForCausalLM"],
        **MODEL_CONFIG["text_config"],
    },
    "hf-model": _TRANSFORMERS_TEXT,
    "layer-types-model": _text(
        local_layer_ids=..., layer_types=["hybrid_sliding", "hybrid", "hybrid_sliding"]
    ),
    "all-global-model": _text(local_layer_ids=[]),
    "no-sink-model": _text(shared_expert_sink=...),
    "no-shared-model": _text(n_shared_experts=0),
    "softmax-model": _text(gate_activation="softmax"),
    "contiguous-model": _text(inference_moe_w13_interleaved=False),
    "early-norm-model": _text(norm_after_topk=False),
    "no-dense-model": _text(dense_mlp_idx=0),
    "float16-model": _text(dtype="float16"),
    "float32-model": {**_text(), "dtype": "float32"},
    "bfloat16-model": {**_text(dtype="bfloat16"), "dtype": "bfloat16"},
    "long-model": _text(model_max_length=4096, max_position_embeddings=4096),
    "mtp-model": {**_text(), "mtp_config": {"num_nextn_predict_layers": 2}},
    "no-architecture-model": {k: v for k, v in MODEL_CONFIG.items() if k != "architectures"},
}
"""config.json of further models."""

FURTHER_MODELS: dict[str, dict[str, Any]] = {
    **{
        f"{key}-{str(value).lower()}-model": _text(**{key: value})
        for key, value in (
            *(("hidden_size", None), ("hidden_size", 0), ("hidden_size", 96.0)),
            *(("num_attention_heads", None), ("num_key_value_heads", None)),
            *(("num_key_value_heads", 0), ("head_dim", 0), ("head_dim", None)),
            *(("d_rel", None), ("d_rel", 0), ("dense_mlp_idx", None), ("num_hidden_layers", 0)),
            *(("sliding_window_size", None), ("n_shared_experts", -1), ("o_bias", True)),
            *(("shared_expert_sink", 1), ("norm_after_topk", None), ("gate_activation", None)),
            *(("dtype", "half"), ("dtype", "foo"), ("rms_norm_eps", None), ("route_scale", None)),
            *(("max_position_embeddings", 0), ("max_position_embeddings", "128")),
            *(("num_key_value_heads", ...), ("swa_num_key_value_heads", ...)),
        )
    },
    "no-text-model": {**_text(), "text_config": None},
    "unknown-class-model": {**_text(), "architectures": ["InklingForFun"]},
    "text-class-model": {**_text(), "architectures": ["InklingForCausalLM"]},
    "class-as-text-model": {**_text(), "architectures": "InklingForConditionalGeneration"},
    "two-classes-model": {**_text(), "architectures": ["Fun", "InklingForConditionalGeneration"]},
    "no-type-model": {k: v for k, v in MODEL_CONFIG.items() if k != "model_type"},
    "other-type-model": {**_text(), "model_type": "inkling"},
    "empty-model": {},
    "mixed-class-model": {
        **MODEL_CONFIG["text_config"],
        "architectures": ["InklingForConditionalGeneration"],
    },
    "text-no-class-model": MODEL_CONFIG["text_config"],
    "size-outside-model": {**_text(), "hidden_size": 96},
    "quant-unknown-model": {**_text(), "quantization_config": {"quant_method": "bitsandbytes"}},
    "quant-fp8-model": {**_text(), "quantization_config": {"quant_method": "fp8"}},
}
"""The same; served alone, not in pairs."""
