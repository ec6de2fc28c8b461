"""Adapters in many layouts and with many faults, for launches that vLLM itself has judged.

Each is the form that vLLM applies whole, for the small test model, with one change. The models
beside them are the small test model with one change of its config.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checks.adapter_folders import (
    DENSE,
    EXPERTS,
    HIDDEN,
    INNER,
    QUERY,
    Shapes,
    attention_modules,
    dense_modules,
    head_modules,
    modules_for_vllm,
    numbered_modules,
    per_expert_modules,
    released_modules,
    shared_outer_modules,
    write_adapter,
    write_world,
)
from conformance.vllm_models import FURTHER_MODELS, MODEL_VARIANTS
from conformance.vllm_settings import CONFIG_VARIANTS, DROPPED_KEYS, FURTHER_VARIANTS
from inkling_runtime.adapter.safetensors_file import TensorSpec, format_header, sort_for_file

Tensors = dict[str, tuple[int, ...]]
"""Tensor name → shape."""

ROOT = "language_model."
LAYER = "language_model.layers."


def tensors_of(modules: Shapes) -> Tensors:
    """Return both factors of every module under their names on disk."""
    return {
        f"{name}.lora_{factor}.weight": shape
        for name, shapes in modules.items()
        for factor, shape in zip("AB", shapes, strict=True)
    }


def write_vllm_world(root: Path) -> Path:
    """Write the test world, the variants beside its adapters and models, and return `root`."""
    write_world(root)
    folder = root / "adapters"
    for name, tensors in {**TENSOR_VARIANTS, **FURTHER_TENSORS}.items():
        _write(folder / name, tensors)
    for name, config in {**CONFIG_VARIANTS, **FURTHER_VARIANTS}.items():
        write_adapter(folder / name, modules_for_vllm(2), **config)
    for name, dropped in DROPPED_KEYS.items():
        _without_key(write_adapter(folder / name, modules_for_vllm(2)), dropped)
    for name, spoil in FILE_FAULTS.items():
        spoil(write_adapter(folder / name, modules_for_vllm(2)))
    for name, (tensors, config) in SCALED_VARIANTS.items():
        _write(folder / name, tensors, **config)
    for name, change in {**MODEL_VARIANTS, **FURTHER_MODELS}.items():
        (root / name).mkdir()
        (root / name / "config.json").write_text(json.dumps(change))
    return root


def _write(folder: Path, tensors: Tensors, dtype: str = "BF16", **config: Any) -> None:
    write_adapter(folder, modules_for_vllm(2), **config)
    specs = sort_for_file(TensorSpec(name, dtype, shape) for name, shape in tensors.items())
    data = format_header(specs, {}) + b"\0" * sum(spec.nbytes for spec in specs)
    (folder / "adapter_model.safetensors").write_bytes(data)


def _without_key(folder: Path, key: str) -> None:
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    del config[key]
    path.write_text(json.dumps(config))


_WHOLE = modules_for_vllm(2)


def _renamed(change: Callable[[str], str]) -> Tensors:
    return tensors_of({change(name): shapes for name, shapes in _WHOLE.items()})


def _replaced(old: str, new: str) -> Tensors:
    return _renamed(lambda name: name.replace(old, new))


def _with(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> Tensors:
    return tensors_of({**_WHOLE, name: (a, b)})


def _without(part: str) -> Tensors:
    return {name: shape for name, shape in tensors_of(_WHOLE).items() if part not in name}


def _reshaped(part: str, shape: tuple[int, ...]) -> Tensors:
    return {name: shape if part in name else old for name, old in tensors_of(_WHOLE).items()}


def _raw_name(name: str) -> str:
    name = name.replace(LAYER, "model.llm.layers.").replace("language_model.lm_head", "unembed")
    name = name.replace("unembed", "model.llm.unembed")
    if ".mlp.gate_up_proj" in name:
        return name.replace("gate_up_proj", "w13_dn")
    return name.replace("mlp.down_proj", "mlp.w2_md")


def _ready_qkvr() -> Tensors:
    modules = {k: v for k, v in _WHOLE.items() if ".attn.w" not in k or "wo_ud" in k}
    for layer, key in enumerate((64, 32, 64)):
        modules[f"{LAYER}{layer}.attn.qkvr"] = ((8, HIDDEN), (128 + 2 * key + 48, 2))
    return tensors_of(modules)


def _dense(gate: str, up: str, down: str) -> Tensors:
    modules = {k: v for k, v in _WHOLE.items() if ".layers.0.mlp." not in k}
    prefix = f"{LAYER}0.mlp."
    modules[prefix + gate] = modules[prefix + up] = ((2, HIDDEN), (DENSE, 2))
    modules[prefix + down] = ((2, DENSE), (HIDDEN, 2))
    return tensors_of(modules)


def _experts(
    outer: int = 1, inner: int = EXPERTS, *, inner_b: int | None = None, rank: int = 2
) -> Tensors:
    modules = dict(_WHOLE)
    for layer in (1, 2):
        prefix = f"{LAYER}{layer}.mlp.experts."
        for name in ("w1", "w3"):
            shapes = ((outer, rank, HIDDEN), (inner_b or inner, INNER, rank))
            modules[prefix + name] = shapes
        modules[prefix + "w2"] = ((inner, rank, INNER), (outer, HIDDEN, rank))
    return tensors_of(modules)


def _packed(*, with_down: bool = True, with_gate_up: bool = True) -> Tensors:
    modules = dict(attention_modules(2))
    for layer in (1, 2):
        prefix = f"{LAYER}{layer}.mlp.experts"
        if with_gate_up:
            shapes = ((2 * EXPERTS, HIDDEN), (2 * INNER, 2 * EXPERTS))
            modules[f"{prefix}.base_layer"] = shapes
        if with_down:
            modules[prefix] = ((2 * EXPERTS, INNER), (HIDDEN, 2 * EXPERTS))
    return tensors_of(modules)


def _numbered(*, without: str = "", extra: Tensors | None = None) -> Tensors:
    tensors = tensors_of(per_expert_modules(2))
    return {n: s for n, s in tensors.items() if not without or without not in n} | (extra or {})


def _numbered_rank(expert: int, rank: int) -> Tensors:
    part = f".experts.{expert}."
    changed = {n: s for n, s in tensors_of(numbered_modules(rank)).items() if part in n}
    return {**_numbered(), **changed}


TENSOR_VARIANTS: dict[str, Tensors] = {
    # names
    "prefix-1": _renamed(lambda name: f"base_model.model.{name}"),
    "prefix-2": _renamed(lambda name: f"base_model.model.model.{name}"),
    "prefix-twice": _renamed(lambda name: f"base_model.model.base_model.model.{name}"),
    "model-language": _renamed(lambda name: f"model.{name}"),
    "model-layers": _renamed(lambda n: n.replace(LAYER, "model.layers.").replace(ROOT, "")),
    "bare-layers": _renamed(lambda n: n.replace(LAYER, "layers.").replace(ROOT, "")),
    "raw-names": _renamed(_raw_name),
    "typo": _replaced("1.attn.wo_ud", "1.attn.wo_du"),
    "hf-attention": _replaced("attn.wq_du", "self_attn.q_proj"),
    "ready-qkvr": _ready_qkvr(),
    "ready-w13": _replaced("sink_experts.w1", "sink_experts.w13"),
    "dense-split": _dense("gate_proj", "up_proj", "down_proj"),
    "dense-w": _dense("w1", "w3", "w2"),
    "unembed": _replaced("language_model.lm_head", "language_model.unembed"),
    "unembed-tokens": _replaced("language_model.lm_head", "model.unembed_tokens"),
    "lm-head-model": _replaced("language_model.lm_head", "model.lm_head"),
    "lm-head-bare": _replaced("language_model.lm_head", "lm_head"),
    "lower-case-lora": {n.replace("lora_A", "lora_a"): s for n, s in tensors_of(_WHOLE).items()},
    "peft-default": {
        n.replace(".weight", ".default.weight"): s for n, s in tensors_of(_WHOLE).items()
    },
    "without-weight": {n.removesuffix(".weight"): s for n, s in tensors_of(_WHOLE).items()},
    "router": _with(f"{LAYER}1.mlp.gate", (2, HIDDEN), (EXPERTS, 2)),
    "embed": _with(f"{ROOT}embed_tokens", (2, 180), (HIDDEN, 2)),
    "norm": _with(f"{LAYER}1.attn_norm", (2, HIDDEN), (HIDDEN, 2)),
    "draft": _with("model.mtp.layers.0.transformer_block.attn.wq_du", (2, HIDDEN), (QUERY, 2)),
    "extra-layer": _with(f"{LAYER}7.attn.wo_ud", (2, QUERY), (HIDDEN, 2)),
    "wrong-kind": _with(f"{LAYER}1.mlp.down_proj", (2, DENSE), (HIDDEN, 2)),
    "experts-on-dense": _with(f"{LAYER}0.mlp.experts.w1", (1, 2, HIDDEN), (EXPERTS, INNER, 2)),
    "experts-w13": _with(f"{LAYER}1.mlp.experts.w13", (1, 2, HIDDEN), (EXPERTS, 2 * INNER, 2)),
    "magnitude": {**tensors_of(_WHOLE), f"{LAYER}1.attn.wo_ud.lora_magnitude_vector": (HIDDEN,)},
    "bias": {**tensors_of(_WHOLE), f"{LAYER}1.attn.wo_ud.lora_B.bias": (HIDDEN,)},
    "head-copy": {**tensors_of(_WHOLE), f"{ROOT}lm_head.base_layer.weight": (180, HIDDEN)},
    "copy-elsewhere": {
        **tensors_of(_WHOLE),
        f"{LAYER}1.attn.wo_ud.base_layer.weight": (HIDDEN, QUERY),
    },
    "embedding-names": {
        **tensors_of(_WHOLE),
        f"{ROOT}embed_tokens.lora_embedding_A": (2, 180),
        f"{ROOT}embed_tokens.lora_embedding_B": (HIDDEN, 2),
    },
    "score-head": {**tensors_of(_WHOLE), "score.weight": (2, HIDDEN)},
    "both-shared-names": tensors_of({**_WHOLE, **released_modules(2)}),
    # groups
    "only-attention": tensors_of(attention_modules(2)),
    "only-dense": tensors_of(dense_modules(2)),
    "only-experts": tensors_of(shared_outer_modules(2)),
    "only-head": tensors_of(head_modules(2)),
    "no-relative": _without(".wr_du."),
    "only-gate-of-sink": _without(".sink_experts.w3."),
    "nothing": {},
    # experts
    "no-w2": _without(".experts.w2."),
    "no-w3": _without(".experts.w3."),
    "no-w2-on-one-layer": _without("1.mlp.experts.w2."),
    "outer-per-expert": _experts(outer=EXPERTS),
    "outer-three": _experts(outer=3),
    "experts-three": _experts(inner=3),
    "experts-five": _experts(inner=5),
    "inner-b-shared": _experts(inner_b=1),
    "flat-experts": {
        n: s[1:] if ".experts.w" in n and "sink" not in n else s
        for n, s in tensors_of(_WHOLE).items()
    },
    "packed": _packed(),
    "packed-no-down": _packed(with_down=False),
    "packed-no-gate-up": _packed(with_gate_up=False),
    "numbered-no-expert": _numbered(without=".experts.3."),
    "numbered-no-down": _numbered(without="1.mlp.experts.2.down_proj."),
    "numbered-no-a": _numbered(without="1.mlp.experts.2.down_proj.lora_A"),
    "numbered-no-b": _numbered(without="1.mlp.experts.2.down_proj.lora_B"),
    "numbered-five": _numbered(
        extra={f"{LAYER}1.mlp.experts.4.gate_proj.lora_A.weight": (2, HIDDEN)}
    ),
    "numbered-ranks": _numbered_rank(2, 1),
    "numbered-w1": {
        n.replace("gate_proj", "w1").replace("up_proj", "w3").replace("down_proj", "w2"): s
        for n, s in _numbered().items()
    },
    "both-expert-layouts": tensors_of({**_WHOLE, **numbered_modules(2)}),
    # factors that are missing
    "no-a-of-q": _without("1.attn.wq_du.lora_A"),
    "no-b-of-q": _without("1.attn.wq_du.lora_B"),
    "no-a-of-o": _without("1.attn.wo_ud.lora_A"),
    "no-b-of-o": _without("1.attn.wo_ud.lora_B"),
    "no-a-of-sink": _without("1.mlp.sink_experts.w1.lora_A"),
    "no-b-of-sink": _without("1.mlp.sink_experts.w1.lora_B"),
    "no-a-of-sink-down": _without("1.mlp.sink_experts.w2.lora_A"),
    "no-a-of-experts": _without("1.mlp.experts.w1.lora_A"),
    "no-b-of-experts": _without("1.mlp.experts.w1.lora_B"),
    "no-b-of-head": _without("lm_head.lora_B"),
    "no-a-anywhere": _without("lora_A"),
    "no-b-anywhere": _without("lora_B"),
    # sizes
    "wider-hidden": {
        n: tuple(128 if d == HIDDEN else d for d in s) for n, s in tensors_of(_WHOLE).items()
    },
    "narrower-hidden": {
        n: tuple(64 if d == HIDDEN else d for d in s) for n, s in tensors_of(_WHOLE).items()
    },
    "long-dense-b": _reshaped("gate_up_proj.lora_B", (2 * DENSE + 2, 2)),
    "short-dense-b": _reshaped("gate_up_proj.lora_B", (DENSE, 2)),
    "long-q": _reshaped("1.attn.wq_du.lora_B", (QUERY + 32, 2)),
    "long-k-on-global": _reshaped("1.attn.wk_dv.lora_B", (64, 2)),
    "short-k-on-local": _reshaped("0.attn.wk_dv.lora_B", (32, 2)),
    "wide-o": _reshaped("1.attn.wo_ud.lora_A", (2, QUERY + 2)),
    "long-sink": _reshaped("1.mlp.sink_experts.w1.lora_B", (2 * INNER + 1, 2)),
    "long-sink-down": _reshaped("1.mlp.sink_experts.w2.lora_A", (2, 3 * INNER)),
    "long-experts": _reshaped("1.mlp.experts.w1.lora_B", (EXPERTS, INNER + 1, 2)),
    "wide-experts": _reshaped("1.mlp.experts.w2.lora_A", (EXPERTS, 2, INNER + 4)),
    "padded-head": _reshaped("lm_head.lora_B", (192, 2)),
    "too-long-head": _reshaped("lm_head.lora_B", (193, 2)),
    "short-head": _reshaped("lm_head.lora_B", (100, 2)),
    "one-dimension": _reshaped("1.attn.wo_ud.lora_B", (HIDDEN,)),
    "three-dimensions": _reshaped("1.attn.wo_ud.lora_B", (1, HIDDEN, 2)),
    # ranks of the tensors, beside `r` 2 in the config
    "tensors-rank-4": tensors_of(modules_for_vllm(4)),
    "tensors-rank-20": tensors_of(modules_for_vllm(20)),
    "tensors-rank-20-attention": tensors_of(attention_modules(20)),
    "one-tensor-rank-20": _reshaped("1.attn.wo_ud.lora_A", (20, QUERY)),
    "ranks-differ": _reshaped("1.attn.wo_ud.lora_B", (HIDDEN, 3)),
}
"""What the tensors of an adapter are called and shaped."""

FURTHER_TENSORS: dict[str, Tensors] = {"outer-none": _experts(outer=0)}
"""The same; served alone, not in pairs."""

_SCALE = {"lora_alpha": 8}

SCALED_VARIANTS: dict[str, tuple[Tensors, dict[str, Any]]] = {
    "scaled": (tensors_of(_WHOLE), _SCALE),
    **{
        f"scaled-{name}": (TENSOR_VARIANTS[name], _SCALE)
        for name in (
            "no-a-of-q",
            "no-b-of-q",
            "no-a-of-o",
            "no-b-of-o",
            "no-a-of-sink",
            "no-b-of-sink",
            "no-a-of-experts",
            "no-b-of-experts",
            "numbered-no-a",
            "numbered-no-b",
        )
    },
    "float32": (tensors_of(_WHOLE), {"dtype": "F32"}),
    "float16": (tensors_of(_WHOLE), {"dtype": "F16"}),
    "rank-256": (tensors_of(modules_for_vllm(256)), {"r": 256}),
    "rank-24": (tensors_of(modules_for_vllm(24)), {"r": 24}),
    "one-by-one-24": (tensors_of(per_expert_modules(24)), {"r": 24}),
    "draft-no-a": (
        {n: s for n, s in TENSOR_VARIANTS["draft"].items() if "mtp" not in n or "lora_A" not in n},
        {},
    ),
    "draft-no-b": (
        {n: s for n, s in TENSOR_VARIANTS["draft"].items() if "mtp" not in n or "lora_B" not in n},
        {},
    ),
    "classifier-saved": (
        {**tensors_of(_WHOLE), "classifier.weight": (2, HIDDEN)},
        {"modules_to_save": ["classifier"]},
    ),
}
"""Variants that need a config of their own beside the tensors."""

FILE_FAULTS: dict[str, Callable[[Path], Any]] = {
    "no-config": lambda folder: (folder / "adapter_config.json").unlink(),
    "no-weights": lambda folder: (folder / "adapter_model.safetensors").unlink(),
    "broken-config": lambda folder: (folder / "adapter_config.json").write_text('{"r": 2,'),
    "list-config": lambda folder: (folder / "adapter_config.json").write_text("[]"),
    "empty-config": lambda folder: (folder / "adapter_config.json").write_text("{}"),
    "cut-weights": lambda folder: _cut(folder / "adapter_model.safetensors"),
    "other-weights-name": lambda folder: (folder / "adapter_model.safetensors").rename(
        folder / "model.safetensors"
    ),
}
"""What is wrong with the files of a folder."""


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])
