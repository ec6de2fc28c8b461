"""Tiny adapters and models on disk: names and shapes are real, numbers are zero.

Three layers (0 dense; 0 and 2 sliding), every width different, E = 4 experts, S = 2 shared.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inkling_runtime.adapter.safetensors_file import TensorSpec, format_header, sort_for_file
from shards import split_weights

HIDDEN, EXPERTS, SHARED = 96, 4, 2
DENSE, INNER, VOCAB = 56, 20, 180
QUERY, REL = 128, 48
KEY = (64, 32, 64)
"""Rows of k and v per layer."""

MODEL_CONFIG: dict[str, Any] = {
    "architectures": ["InklingForConditionalGeneration"],
    "model_type": "inkling_mm_model",
    "text_config": {
        "model_type": "inkling_model",
        "vocab_size": 192,
        "unpadded_vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "dense_intermediate_size": DENSE,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "swa_num_key_value_heads": 2,
        "head_dim": 32,
        "d_rel": 12,
        "rel_extent": 64,
        "local_layer_ids": [0, 2],
        "sliding_window_size": 16,
        "dense_mlp_idx": 1,
        "n_routed_experts": EXPERTS,
        "n_shared_experts": SHARED,
        "num_experts_per_tok": 2,
        "route_scale": 8.0,
        "logits_mup_width_multiplier": 16.0,
        "use_embed_norm": True,
        "use_gate_bias": True,
        "use_global_scale": True,
        "use_sconv": True,
        "shared_expert_sink": True,
        "sconv_kernel_size": 4,
    },
}

Shapes = dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
"""Module name → shapes of A and B."""


def attention_modules(rank: int) -> Shapes:
    """Return q, k, v, r and o of every layer, in the released names."""
    modules: Shapes = {}
    for layer, key in enumerate(KEY):
        rows = {"wq_du": QUERY, "wk_dv": key, "wv_dv": key, "wr_du": REL}
        for name, out in rows.items():
            modules[_name(layer, f"attn.{name}")] = ((rank, HIDDEN), (out, rank))
        modules[_name(layer, "attn.wo_ud")] = ((rank, QUERY), (HIDDEN, rank))
    return modules


def dense_modules(rank: int) -> Shapes:
    """Return the dense MLP of layer 0."""
    return {
        _name(0, "mlp.gate_up_proj"): ((rank, HIDDEN), (2 * DENSE, rank)),
        _name(0, "mlp.down_proj"): ((rank, DENSE), (HIDDEN, rank)),
    }


def shared_outer_modules(rank: int) -> Shapes:
    """Return the routed experts as three-dimensional stacks with a shared hidden side."""
    modules: Shapes = {}
    for layer in (1, 2):
        for name in ("w1", "w3"):
            shapes = ((1, rank, HIDDEN), (EXPERTS, INNER, rank))
            modules[_name(layer, f"mlp.experts.{name}")] = shapes
        shapes = ((EXPERTS, rank, INNER), (1, HIDDEN, rank))
        modules[_name(layer, "mlp.experts.w2")] = shapes
    return modules


def numbered_modules(rank: int) -> Shapes:
    """Return the routed experts one by one."""
    modules: Shapes = {}
    for layer in (1, 2):
        for expert in range(EXPERTS):
            for name in ("gate_proj", "up_proj"):
                shapes = ((rank, HIDDEN), (INNER, rank))
                modules[_name(layer, f"mlp.experts.{expert}.{name}")] = shapes
            shapes = ((rank, INNER), (HIDDEN, rank))
            modules[_name(layer, f"mlp.experts.{expert}.down_proj")] = shapes
    return modules


def shared_expert_modules(rank: int) -> Shapes:
    """Return the shared experts, flat."""
    modules: Shapes = {}
    for layer in (1, 2):
        for name in ("w1", "w3"):
            shapes = ((rank, HIDDEN), (SHARED * INNER, rank))
            modules[_name(layer, f"mlp.shared_experts.{name}")] = shapes
        shapes = ((rank, SHARED * INNER), (HIDDEN, rank))
        modules[_name(layer, "mlp.shared_experts.w2")] = shapes
    return modules


def head_modules(rank: int) -> Shapes:
    """Return the head."""
    return {"language_model.lm_head": ((rank, HIDDEN), (VOCAB, rank))}


def released_modules(rank: int) -> Shapes:
    """Return all modules of an adapter in the released schema."""
    return {
        **attention_modules(rank),
        **dense_modules(rank),
        **shared_outer_modules(rank),
        **shared_expert_modules(rank),
        **head_modules(rank),
    }


def modules_for_vllm(rank: int) -> Shapes:
    """Return the same modules under the names that vLLM applies."""
    modules = released_modules(rank)
    return {name.replace("shared_experts", "sink_experts"): s for name, s in modules.items()}


def per_expert_modules(rank: int) -> Shapes:
    """Return attention, and routed experts that are stored one by one."""
    return {**attention_modules(rank), **numbered_modules(rank)}


def write_adapter(
    folder: Path, modules: Shapes | None = None, rank: int = 2, **config: Any
) -> Path:
    """Write an adapter folder and return it; the released schema where no modules are given."""
    folder.mkdir(parents=True, exist_ok=True)
    modules = released_modules(rank) if modules is None else modules
    specs = sort_for_file(
        TensorSpec(f"{name}.lora_{factor}.weight", "BF16", shape)
        for name, shapes in modules.items()
        for factor, shape in zip("AB", shapes, strict=True)
    )
    data = format_header(specs, {}) + b"\0" * sum(spec.nbytes for spec in specs)
    (folder / "adapter_model.safetensors").write_bytes(data)
    values: Mapping[str, Any] = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": rank,
        "target_modules": "all-linear",
        **config,
    }
    (folder / "adapter_config.json").write_text(json.dumps(values))
    return folder


def write_model(folder: Path, **changes: Any) -> Path:
    """Write a model folder with nothing but its config.json and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**MODEL_CONFIG, **changes}))
    return folder


def write_text_model(folder: Path) -> Path:
    """Write the config.json of the text model alone and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {**MODEL_CONFIG["text_config"], "architectures": ["InklingForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def _name(layer: int, module: str) -> str:
    return f"language_model.layers.{layer}.{module}"


RUNTIME_TARGETS = ["qkvr", "wo_ud", "gate_up_proj", "down_proj", "lm_head"]
"""`target_modules` as SGLang's runtime calls them."""


def write_world(root: Path) -> Path:
    """Write the models and adapters that launches in tests name, and return their folder."""
    write_model(root / "model")
    write_model(root / "llama", architectures=["LlamaForCausalLM"], model_type="llama")
    write_model(root / "torn", text_config={"model_type": "inkling_model"})
    write_text_model(root / "text-only")
    adapters = root / "adapters"
    write_adapter(adapters / "released")
    write_adapter(adapters / "twin")
    write_adapter(adapters / "for-vllm", modules_for_vllm(2))
    write_adapter(adapters / "twin-for-vllm", modules_for_vllm(2))
    write_adapter(adapters / "rank32", rank=32)
    write_adapter(adapters / "rank32-for-vllm", modules_for_vllm(32), rank=32)
    names = ["wq_du", "wo_ud", "w1"]
    write_adapter(adapters / "released-names-for-vllm", modules_for_vllm(2), target_modules=names)
    write_adapter(adapters / "rank1024", rank=1024)
    write_adapter(adapters / "attention", attention_modules(2), target_modules=["qkvr", "wo_ud"])
    write_adapter(adapters / "one-by-one", per_expert_modules(2))
    stacks = {**attention_modules(2), **_per_expert_stacks(2)}
    write_adapter(adapters / "stacks", stacks)
    write_adapter(adapters / "both-layouts", {**stacks, **shared_expert_modules(2)})
    write_adapter(adapters / "runtime-names", target_modules=RUNTIME_TARGETS)
    write_adapter(adapters / "released-names", target_modules=names)
    write_adapter(adapters / "pattern", target_modules=".*attn.*")
    write_adapter(adapters / "no-head-name", target_modules=RUNTIME_TARGETS[:-1])
    write_adapter(adapters / "rslora", use_rslora=True)
    narrow = {name: s for name, s in released_modules(1).items() if name.endswith("wq_du")}
    mixed = {**released_modules(2), **narrow}
    write_adapter(adapters / "rank-pattern", mixed, rank_pattern={"wq_du": 1})
    write_adapter(adapters / "alpha-pattern", alpha_pattern={"wq_du": 8})
    (write_adapter(adapters / "torn") / "adapter_model.safetensors").write_bytes(b"\0" * 4)
    padded = {**released_modules(2), "language_model.lm_head": ((2, HIDDEN), (192, 2))}
    write_adapter(adapters / "padded-head", padded)
    write_adapter(adapters / "dora", use_dora=True)
    write_adapter(adapters / "ia3", peft_type="IA3")
    (write_adapter(adapters / "added-tokens") / "added_tokens.json").write_text('{"<a>": 500}')
    moved = write_adapter(adapters / "other-file")
    (moved / "adapter_model.safetensors").rename(moved / "model.safetensors")
    second = write_adapter(adapters / "second-file-torn")
    (second / "more.safetensors").write_bytes(b"\0" * 4)
    _write_what_sglang_misses(adapters)
    _write_what_vllm_refuses(root)
    return root


def _write_what_sglang_misses(adapters: Path) -> None:
    sinks = {n: s for n, s in modules_for_vllm(2).items() if "sink_experts" in n}
    write_adapter(adapters / "sinks", {**attention_modules(2), **sinks})
    half = {name: s for name, s in _per_expert_stacks(2).items() if not name.endswith("w2")}
    half |= {name: s for name, s in shared_outer_modules(2).items() if name.endswith("w2")}
    write_adapter(adapters / "half-shared", {**attention_modules(2), **half})
    stray = write_adapter(adapters / "stray", {"language_model.unembed": ((2, HIDDEN), (VOCAB, 2))})
    data = (stray / "adapter_model.safetensors").read_bytes()
    (write_adapter(adapters / "second-file-stray") / "more.safetensors").write_bytes(data)
    data = (adapters / "attention" / "adapter_model.safetensors").read_bytes()
    (write_adapter(adapters / "second-file-again") / "more.safetensors").write_bytes(data)


def _write_what_vllm_refuses(root: Path) -> None:
    adapters, whole = root / "adapters", modules_for_vllm(2)
    write_adapter(adapters / "dora-for-vllm", whole, use_dora=True)
    misnamed = {name.replace("1.attn.wo_ud", "1.attn.wo_du"): s for name, s in whole.items()}
    write_adapter(adapters / "misnamed", misnamed)
    bare = {name.removeprefix("language_model."): s for name, s in whole.items()}
    write_adapter(adapters / "bare", bare)
    incomplete = {name: s for name, s in whole.items() if not name.endswith(".experts.w2")}
    write_adapter(adapters / "incomplete", incomplete)
    oversized = {**whole, _name(1, "attn.wo_ud"): ((2, QUERY + 32), (HIDDEN, 2))}
    write_adapter(adapters / "oversized", oversized)
    narrow = {**whole, _name(0, "mlp.down_proj"): ((2, DENSE - 8), (HIDDEN, 2))}
    write_adapter(adapters / "narrow-for-vllm", narrow)
    write_adapter(adapters / "only-dense", dense_modules(2))
    write_adapter(adapters / "only-shared", {**attention_modules(2), **shared_expert_modules(2)})
    twice = 2 * "base_model.model." + _name(0, "mlp.down_proj")
    short = {**attention_modules(2), twice: ((2, DENSE), (HIDDEN - 1, 2))}
    write_adapter(adapters / "short-under-two-wrappers", short)
    packed = dict(attention_modules(2))
    for layer in (1, 2):
        wide, narrow = (2 * EXPERTS, HIDDEN), (2 * INNER, 2 * EXPERTS)
        packed[_name(layer, "mlp.experts.base_layer")] = (wide, narrow)
        packed[_name(layer, "mlp.experts")] = ((2 * EXPERTS, INNER), (HIDDEN, 2 * EXPERTS))
    write_adapter(adapters / "packed", packed)
    split_weights(write_adapter(adapters / "sharded-for-vllm", whole), 2)
    pickled = write_adapter(adapters / "pickled", whole)
    (pickled / "adapter_model.safetensors").rename(pickled / "adapter_model.bin")
    text = MODEL_CONFIG["text_config"]
    _write_text_config(root / "no-sink", {**text, "shared_expert_sink": False})
    _write_text_config(root / "no-local-ids", _without(text, "local_layer_ids"))
    kinds = ["dense", "sparse", "sparse"]
    without = _without(text, "dense_mlp_idx")
    _write_text_config(root / "no-dense-index", {**without, "mlp_layer_types": kinds})
    _write_text_config(root / "null-heads", {**text, "num_key_value_heads": None})
    _write_text_config(root / "short", {**text, "model_max_length": 4096})
    write_model(root / "no-architecture", architectures=[])
    write_model(root / "no-type", model_type=None)
    write_model(root / "nvfp4", quantization_config={"quant_algo": "NVFP4"})
    write_model(root / "mtp", mtp_config={"num_nextn_predict_layers": 2})


def _write_text_config(folder: Path, text: Mapping[str, Any]) -> None:
    write_model(folder, text_config=dict(text))


def _without(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}


def _per_expert_stacks(rank: int) -> Shapes:
    stacked = {}
    for name, (a, b) in shared_outer_modules(rank).items():
        stacked[name] = ((EXPERTS, *a[1:]), (EXPERTS, *b[1:]))
    return stacked
