"""Odd adapters and models, beyond `sglang_adapters.py`: tensors alone, files beside, odd configs.

Each is the small test model or its released adapter with one change; `sglang_launches.py` uses all.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checks.adapter_folders import (
    HIDDEN,
    MODEL_CONFIG,
    QUERY,
    VOCAB,
    released_modules,
    write_adapter,
    write_model,
)
from inkling_runtime.adapter.safetensors_file import TensorSpec, format_header, sort_for_file

_FIRST = "language_model.layers.0."
_OUTPUT = f"{_FIRST}attn.wo_ud"
TOKENS: dict[str, Any] = {
    "tokens-null": {"<a>": None},
    "tokens-text": {"<a>": "500"},
    "tokens-fraction": {"<a>": 500.5},
    "tokens-list": [500],
    "tokens-none": {},
}
"""Name → added_tokens.json."""

Tensors = dict[str, tuple[int, ...]]


def _released() -> Tensors:
    return {
        f"{name}.lora_{factor}.weight": shape
        for name, shapes in released_modules(2).items()
        for factor, shape in zip("AB", shapes, strict=True)
    }


def _tensor_variants() -> Mapping[str, Tensors]:
    whole = _released()
    embedding = "language_model.embed_tokens.lora_embedding_"
    return {
        "output-no-b": {k: v for k, v in whole.items() if k != f"{_OUTPUT}.lora_B.weight"},
        "output-no-a": {k: v for k, v in whole.items() if k != f"{_OUTPUT}.lora_A.weight"},
        "down-no-b": {
            k: v for k, v in whole.items() if k != f"{_FIRST}mlp.down_proj.lora_B.weight"
        },
        "base-beside": {**whole, f"{_OUTPUT}.base_layer.weight": (HIDDEN, QUERY)},
        "head-beside": {**whole, "language_model.lm_head.weight": (VOCAB, HIDDEN)},
        "embedding": {**whole, f"{embedding}A": (2, VOCAB), f"{embedding}B": (HIDDEN, 2)},
        "default-names": {k.replace(".weight", ".default.weight"): v for k, v in whole.items()},
    }


def _write_tensors(path: Path, tensors: Tensors) -> None:
    specs = sort_for_file(TensorSpec(name, "BF16", shape) for name, shape in tensors.items())
    path.write_bytes(format_header(specs, {}) + b"\0" * sum(spec.nbytes for spec in specs))


def _text_variants() -> Mapping[str, dict[str, Any]]:
    """Return texts of config.json's text part, by the name of the model."""
    text = MODEL_CONFIG["text_config"]
    kinds = ["hybrid_sliding", "hybrid", "hybrid_sliding"]
    foreign = {"intermediate_size": 56, "moe_intermediate_size": 20, "layer_types": kinds}
    foreign["mlp_layer_types"] = ["dense", "sparse", "sparse"]
    raw = ("dense_intermediate_size", "dense_mlp_idx", "local_layer_ids")
    return {
        "foreign-spelling": {k: v for k, v in text.items() if k not in raw} | foreign,
        "no-heads": {k: v for k, v in text.items() if k != "num_attention_heads"},
        "no-width": {k: v for k, v in text.items() if k != "intermediate_size"},
        "no-experts-key": {k: v for k, v in text.items() if k != "n_routed_experts"},
        "local-outside": {**text, "local_layer_ids": [0, 3]},
        "local-twice": {**text, "local_layer_ids": [0, 0]},
        "local-null": {**text, "local_layer_ids": None},
        "draft-outside": {**text, "mtp_local_layer_ids": [9]},
        "padded-said": {**text, "padded_vocab_size": 192},
    }


def _without(key: str) -> dict[str, Any]:
    return {name: value for name, value in MODEL_CONFIG.items() if name != key}


def _config_variants() -> Mapping[str, dict[str, Any]]:
    text = MODEL_CONFIG["text_config"]
    return {
        "architectures-null": {**MODEL_CONFIG, "architectures": None},
        "architectures-gone": _without("architectures"),
        "type-gone": _without("model_type"),
        "type-other": {**MODEL_CONFIG, "model_type": "inkling"},
        "text-gone": _without("text_config"),
        "text-alone": {**text, "architectures": MODEL_CONFIG["architectures"]},
        "sizes-outside": {**MODEL_CONFIG, "vocab_size": 192},
        "other-first": {**MODEL_CONFIG, "architectures": ["Other", *MODEL_CONFIG["architectures"]]},
    }


ADAPTERS = (*TOKENS, *_tensor_variants(), "second-file", "second-file-torn")
MODELS = (*_text_variants(), *_config_variants(), "no-architecture")


def write_odd_worlds(root: Path) -> None:
    """Write the adapters and models of this file into a test world."""
    folder = root / "adapters"
    for name, tokens in TOKENS.items():
        (write_adapter(folder / name) / "added_tokens.json").write_text(json.dumps(tokens))
    for name, tensors in _tensor_variants().items():
        _write_tensors(write_adapter(folder / name) / "adapter_model.safetensors", tensors)
    second = write_adapter(folder / "second-file") / "more.safetensors"
    _write_tensors(second, {f"{_FIRST}attn.other.lora_A.weight": (2, HIDDEN)})
    for name, text in _text_variants().items():
        write_model(root / name, text_config=text)
    for name, config in _config_variants().items():
        write_model(root / name)
        (root / name / "config.json").write_text(json.dumps(config))
