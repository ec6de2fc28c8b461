"""Adapters in many layouts and with many faults, for launches that SGLang itself has judged.

Each is the released form of the small test model with one change; `sglang_launches.py` names them.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from checks.adapter_folders import (
    DENSE,
    EXPERTS,
    HIDDEN,
    INNER,
    RUNTIME_TARGETS,
    SHARED,
    Shapes,
    attention_modules,
    dense_modules,
    head_modules,
    modules_for_vllm,
    per_expert_modules,
    released_modules,
    shared_expert_modules,
    shared_outer_modules,
    write_adapter,
    write_world,
)
from conformance.sglang_odd_worlds import write_odd_worlds

PADDED_VOCAB = 192


def write_sglang_world(root: Path) -> Path:
    """Write the test world, the variants beside its adapters, a text-only model; return `root`."""
    write_world(root)
    folder = root / "adapters"
    for name, modules in _module_variants().items():
        write_adapter(folder / name, modules)
    for name, config in CONFIG_VARIANTS.items():
        write_adapter(folder / name, **config)
    for name, dropped in DROPPED_KEYS.items():
        _without_keys(write_adapter(folder / name), dropped)
    for name, spoil in FILE_FAULTS.items():
        spoil(write_adapter(folder / name))
    write_odd_worlds(root)
    return root


def _renamed(change: Callable[[str], str]) -> Shapes:
    return {change(name): shapes for name, shapes in released_modules(2).items()}


def _replaced(old: str, new: str, where: str = "") -> Shapes:
    return _renamed(lambda name: name.replace(old, new) if where in name else name)


def _without(part: str) -> Shapes:
    return {name: shapes for name, shapes in released_modules(2).items() if part not in name}


def _with(*others: tuple[str, tuple[int, ...], tuple[int, ...]]) -> Shapes:
    return {**released_modules(2), **{name: (a, b) for name, a, b in others}}


def _reshaped(part: str, a: tuple[int, ...], b: tuple[int, ...]) -> Shapes:
    modules = released_modules(2)
    return {name: (a, b) if part in name else shapes for name, shapes in modules.items()}


def _ready_qkvr(rows: int) -> Shapes:
    modules = {k: v for k, v in released_modules(2).items() if ".attn.w" not in k or "wo_ud" in k}
    for layer, key in enumerate((64, 32, 64)):
        shapes = ((rows, HIDDEN), (128 + 2 * key + 48, 2))
        modules[f"language_model.layers.{layer}.attn.qkvr"] = shapes
    return modules


def _split_dense(gate: str, up: str, down: str) -> Shapes:
    modules = {k: v for k, v in released_modules(2).items() if ".layers.0.mlp." not in k}
    prefix = "language_model.layers.0.mlp."
    modules[prefix + gate] = modules[prefix + up] = ((2, HIDDEN), (DENSE, 2))
    modules[prefix + down] = ((2, DENSE), (HIDDEN, 2))
    return modules


def _shared_stacks(count: int) -> Shapes:
    modules = released_modules(2)
    for layer in (1, 2):
        prefix = f"language_model.layers.{layer}.mlp.shared_experts."
        for name in ("w1", "w3"):
            modules[prefix + name] = ((1, 2, HIDDEN), (count, INNER, 2))
        modules[prefix + "w2"] = ((count, 2, INNER), (1, HIDDEN, 2))
    return modules


def _numbered_shared() -> Shapes:
    modules = per_expert_modules(2)
    for layer in (1, 2):
        for expert in range(SHARED):
            prefix = f"language_model.layers.{layer}.mlp.shared_experts.{expert}."
            for name in ("gate_proj", "up_proj"):
                modules[prefix + name] = ((2, HIDDEN), (INNER, 2))
            modules[prefix + "down_proj"] = ((2, INNER), (HIDDEN, 2))
    return modules


def _experts(count: int) -> Shapes:
    modules = released_modules(2)
    for layer in (1, 2):
        prefix = f"language_model.layers.{layer}.mlp.experts."
        for name in ("w1", "w3"):
            modules[prefix + name] = ((1, 2, HIDDEN), (count, INNER, 2))
        modules[prefix + "w2"] = ((count, 2, INNER), (1, HIDDEN, 2))
    return modules


def _raw_name(name: str) -> str:
    name = name.replace("language_model.layers", "model.llm.layers")
    name = name.replace("language_model.lm_head", "model.llm.unembed")
    return name.replace("mlp.gate_up_proj", "mlp.w13_dn").replace("mlp.down_proj", "mlp.w2_md")


def _foreign_name(name: str) -> str:
    for old, new in (("wq_du", "q_proj"), ("wk_dv", "k_proj"), ("wv_dv", "v_proj")):
        name = name.replace(f"attn.{old}", f"self_attn.{new}")
    return name.replace("attn.wr_du", "self_attn.r_proj").replace("attn.wo_ud", "self_attn.o_proj")


def _shallow(rank_a: int, rank_b: int) -> Shapes:
    """Return the released form with ranks of one attention output that the config does not say."""
    return _reshaped("layers.1.attn.wo_ud", (rank_a, 128), (HIDDEN, rank_b))


def _module_variants() -> Mapping[str, Shapes]:
    first = "language_model.layers.1."
    return {
        "prefix-1": _renamed("base_model.model.".__add__),
        "prefix-2": _renamed("base_model.model.model.".__add__),
        "raw-names": _renamed(_raw_name),
        "model-layers": _renamed(lambda name: name.replace("language_model.l", "model.l")),
        "both-names": {**released_modules(2), **modules_for_vllm(2)},
        "unembed": _replaced("lm_head", "unembed"),
        "unembed-tokens": _replaced("lm_head", "unembed_tokens"),
        "hf-attention": _renamed(_foreign_name),
        "qkvr-4r": _ready_qkvr(8),
        "qkvr-r": _ready_qkvr(2),
        "qkvr-3r": _ready_qkvr(6),
        "dense-split": _split_dense("gate_proj", "up_proj", "down_proj"),
        "dense-w": _split_dense("w1", "w3", "w2"),
        "router": _with((f"{first}mlp.gate", (2, HIDDEN), (6, 2))),
        "embed": _with(("language_model.embed_tokens", (2, 180), (HIDDEN, 2))),
        "embed-padded": _with(("language_model.embed_tokens", (2, PADDED_VOCAB), (HIDDEN, 2))),
        "mtp": _with(("model.mtp.layers.0.attn.wq_du", (2, HIDDEN), (128, 2))),
        "extra-layer": _with(("language_model.layers.7.attn.wo_ud", (2, 128), (HIDDEN, 2))),
        "typo": _replaced("wo_ud", "wo_du", "layers.1."),
        "wrong-kind": _with((f"{first}mlp.down_proj", (2, INNER), (HIDDEN, 2))),
        "no-r-part": _without("wr_du"),
        "no-q-part": _without("wq_du"),
        "no-up": _without("experts.w3"),
        "no-gate": _without("experts.w1"),
        "no-down": _without("experts.w2"),
        "no-shared": _without("shared_experts"),
        "no-experts": _without("experts"),
        "no-dense": _without(".layers.0.mlp."),
        "experts-only": shared_outer_modules(2),
        "shared-only": shared_expert_modules(2),
        "dense-only": dense_modules(2),
        "head-only": head_modules(2),
        "attention-only": attention_modules(2),
        "kv-swapped": _reshaped("layers.1.attn.wk_dv", (2, HIDDEN), (64, 2)),
        "narrow-hidden": _reshaped("layers.1.attn.wq_du", (2, 64), (128, 2)),
        "narrow-output": _reshaped("layers.1.attn.wo_ud", (2, 64), (HIDDEN, 2)),
        "short-dense": _reshaped("layers.0.mlp.gate_up_proj", (2, HIDDEN), (2 * DENSE - 2, 2)),
        "short-head": _reshaped("lm_head", (2, HIDDEN), (170, 2)),
        "padded-head": _reshaped("lm_head", (2, HIDDEN), (PADDED_VOCAB, 2)),
        "three-experts": _experts(EXPERTS - 1),
        "five-experts": _experts(EXPERTS + 1),
        "odd-shared": _reshaped("layers.1.mlp.shared_experts.w1", (2, HIDDEN), (41, 2)),
        "wide-shared": _reshaped("layers.1.mlp.shared_experts.w1", (2, HIDDEN), (44, 2)),
        "shared-stacks": _shared_stacks(SHARED),
        "shared-one-stack": _shared_stacks(1),
        "shared-numbered": _numbered_shared(),
        "rank-above": _shallow(4, 4),
        "rank-below": _shallow(1, 1),
        "ranks-differ": _shallow(2, 1),
        "all-ranks-above": released_modules(4),
        "flat-expert": _reshaped("layers.1.mlp.experts.w1", (2, HIDDEN), (INNER, 2)),
    }


CONFIG_VARIANTS: dict[str, dict[str, Any]] = {
    "targets-all": {"target_modules": "all"},
    "targets-null": {"target_modules": None},
    "targets-empty": {"target_modules": []},
    "targets-other-word": {"target_modules": "all_linear"},
    "targets-dotted": {"target_modules": ["attn.qkvr", "attn.wo_ud", "mlp.gate_up_proj"]},
    "targets-parts": {
        "target_modules": ["qkvr", "wo_ud", "gate_proj", "up_proj", "down_proj", "unembed_tokens"]
    },
    "targets-half": {"target_modules": ["qkvr", "wo_ud", "gate_up_proj"]},
    "targets-attention": {"target_modules": ["qkvr", "wo_ud"]},
    "targets-hf": {"target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]},
    "targets-and-embed": {"target_modules": [*RUNTIME_TARGETS, "embed_tokens"]},
    "dora": {"use_dora": True},
    "no-dora": {"use_dora": False},
    "ia3": {"peft_type": "IA3"},
    "lower-case-type": {"peft_type": "lora"},
    "alpha-zero": {"lora_alpha": 0},
    "alpha-64": {"lora_alpha": 64},
    "alpha-text": {"lora_alpha": "16"},
    "rank-zero": {"r": 0},
    "rank-text": {"r": "2"},
    "rank-one-said": {"r": 1},
    "rank-four-said": {"r": 4},
    "saved-modules": {"modules_to_save": ["lm_head"]},
    "bias-all": {"bias": "all"},
    "other-base": {"base_model_name_or_path": "org/other", "task_type": "CAUSAL_LM"},
}

DROPPED_KEYS = {
    "no-type": "peft_type",
    "no-rank": "r",
    "no-alpha": "lora_alpha",
    "no-targets": "target_modules",
}


def _without_keys(folder: Path, key: str) -> None:
    path = folder / "adapter_config.json"
    values = json.loads(path.read_text())
    del values[key]
    path.write_text(json.dumps(values))


def _write(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


FILE_FAULTS: dict[str, Callable[[Path], object]] = {
    "no-weights": lambda folder: (folder / "adapter_model.safetensors").unlink(),
    "no-config": lambda folder: (folder / "adapter_config.json").unlink(),
    "config-torn": _write("adapter_config.json", '{"r": 2'),
    "config-list": _write("adapter_config.json", "[2]"),
    "added-tokens": _write("added_tokens.json", '{"<a>": 500, "<b>": 501}'),
    "known-tokens": _write("added_tokens.json", '{"<a>": 5}'),
    "padding-token": _write("added_tokens.json", '{"<a>": 185}'),
    "torn-tokens": _write("added_tokens.json", "{"),
    "renamed-weights": lambda folder: (folder / "adapter_model.safetensors").rename(
        folder / "model.safetensors"
    ),
    "gone": shutil.rmtree,
}
