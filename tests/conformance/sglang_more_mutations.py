"""What may be changed of an adapter, one thing at a time: shapes, dtypes, config, files. Data."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from checks.adapter_folders import HIDDEN, INNER, QUERY, RUNTIME_TARGETS, SHARED
from conformance.sglang_drafts import RANK, Draft, Tensor
from conformance.sglang_mutations import ADDED, MISSING, P0, P1, RENAMED, Mutation

Shape = tuple[int, ...]


def growing(axis: int, by: int, *parts: str) -> Mutation:
    """Return a mutation that makes tensors larger or smaller along an axis."""

    def change(shape: Shape) -> Shape:
        if not -len(shape) <= axis < len(shape):
            return shape
        place = axis % len(shape)
        return (*shape[:place], max(shape[place] + by, 0), *shape[place + 1 :])

    return lambda draft: draft.reshape(change, *parts)


def turning(*parts: str) -> Mutation:
    """Return a mutation that exchanges the last two sizes."""
    return lambda draft: draft.reshape(lambda s: (*s[:-2], *reversed(s[-2:])), *parts)


def filling(value: float, *parts: str) -> Mutation:
    """Return a mutation that gives all elements of tensors one value."""

    def mutate(draft: Draft) -> None:
        for name, tensor in draft.tensors.items():
            if all(part in name for part in parts):
                draft.tensors[name] = replace(tensor, value=value)

    return mutate


def spreading(count: int, *parts: str) -> Mutation:
    """Return a mutation that gives the first size of stacks another value."""
    return lambda draft: draft.reshape(lambda s: (count, *s[1:]) if len(s) == 3 else s, *parts)


def _stack_sinks(draft: Draft) -> None:
    for name, tensor in draft.tensors.items():
        if "shared_experts." not in name or len(tensor.shape) != 2:
            continue
        rows, columns = tensor.shape
        is_down = ".w2." in name
        if is_down is not ("lora_A" in name):
            shape: Shape = (1, rows, columns)
        elif is_down:
            shape = (SHARED, rows, columns // SHARED)
        else:
            shape = (SHARED, rows // SHARED, columns)
        draft.tensors[name] = replace(tensor, shape=shape)


def _number_sinks(draft: Draft) -> None:
    for layer in (1, 2):
        prefix = f"language_model.layers.{layer}.mlp.shared_experts."
        draft.drop(prefix)
        for i in range(SHARED):
            both = ((RANK, HIDDEN), (INNER, RANK))
            draft.add({f"{prefix}{i}.gate_proj": both, f"{prefix}{i}.up_proj": both})
            draft.add({f"{prefix}{i}.down_proj": ((RANK, INNER), (HIDDEN, RANK))})


def _flatten(draft: Draft) -> None:
    draft.reshape(lambda s: s[-2:], f"{P1}mlp.experts.w1")


def _compensate(draft: Draft) -> None:
    growing(-2, 16, f"{P1}attn.wq_du.lora_B")(draft)
    growing(-2, -16, f"{P1}attn.wk_dv.lora_B")(draft)


def _shift_ranks(draft: Draft) -> None:
    growing(-2, 1, f"{P1}attn.wq_du.lora_A")(draft)
    growing(-2, -1, f"{P1}attn.wk_dv.lora_A")(draft)


def _other_rank(draft: Draft) -> None:
    growing(-2, 1, "lora_A")(draft)
    growing(-1, 1, "lora_B")(draft)


def _smaller_model(draft: Draft) -> None:
    draft.reshape(lambda s: tuple(n // 2 if n in (HIDDEN, QUERY, INNER) else n for n in s), "")


SHAPES: Mapping[str, Mutation] = {
    "rank-above-output": lambda d: [
        growing(-2, 1, f"{P1}attn.wo_ud.lora_A")(d),
        growing(-1, 1, f"{P1}attn.wo_ud.lora_B")(d),
    ],
    "rank-a-query": growing(-2, 1, f"{P1}attn.wq_du.lora_A"),
    "rank-a-gate": growing(-2, 3, f"{P1}mlp.experts.w1.lora_A"),
    "rank-a-down": growing(-2, 2, f"{P1}mlp.experts.w2.lora_A"),
    "rank-a-output": growing(-2, -1, f"{P1}attn.wo_ud.lora_A"),
    "rank-all": _other_rank,
    "ranks-shifted": _shift_ranks,
    "narrow-query": growing(-1, -32, f"{P1}attn.wq_du.lora_A"),
    "wide-output": growing(-1, 16, f"{P1}attn.wo_ud.lora_A"),
    "narrow-output": growing(-1, -16, f"{P1}attn.wo_ud.lora_A"),
    "wide-dense-down": growing(-1, 8, f"{P0}mlp.down_proj.lora_A"),
    "tall-dense": growing(-2, 8, f"{P0}mlp.gate_up_proj.lora_B"),
    "short-dense": growing(-2, -2, f"{P0}mlp.gate_up_proj.lora_B"),
    "tall-query": growing(-2, 16, f"{P1}attn.wq_du.lora_B"),
    "tall-rel": growing(-2, 16, f"{P1}attn.wr_du.lora_B"),
    "short-rel": growing(-2, -16, f"{P1}attn.wr_du.lora_B"),
    "query-for-key": _compensate,
    "kv-global": growing(-2, 32, f"{P1}attn.wk_dv.lora_B"),
    "short-head": growing(-2, -10, "lm_head.lora_B"),
    "padded-head": growing(-2, 12, "lm_head.lora_B"),
    "wide-expert": growing(-1, 4, f"{P1}mlp.experts.w2.lora_A"),
    "tall-expert": growing(-2, 4, f"{P1}mlp.experts.w1.lora_B"),
    "odd-sink": growing(-2, 1, f"{P1}mlp.shared_experts.w1.lora_B"),
    "tall-sink": growing(-2, 4, f"{P1}mlp.shared_experts.w1.lora_B"),
    "three-experts": spreading(3, ".experts.w"),
    "three-inner": lambda d: [
        spreading(3, f".experts.w{i}.lora_{f}")(d) for i, f in ((1, "B"), (3, "B"), (2, "A"))
    ],
    "five-inner": lambda d: [
        spreading(5, f".experts.w{i}.lora_{f}")(d) for i, f in ((1, "B"), (3, "B"), (2, "A"))
    ],
    "up-for-each": spreading(4, ".experts.w3.lora_A"),
    "gate-for-each": lambda d: [spreading(4, f".experts.w{i}.lora_A")(d) for i in (1, 3)],
    "down-for-each": spreading(4, ".experts.w2.lora_B"),
    "down-for-one": spreading(1, ".experts.w2.lora_B"),
    "inner-for-one": spreading(1, ".experts.w1.lora_B"),
    "flat-expert": _flatten,
    "turned-query": turning(f"{P1}attn.wq_du.lora_A"),
    "turned-expert": turning(f"{P1}mlp.experts.w1.lora_A"),
    "turned-all": turning("lora_"),
    "sink-stacks": _stack_sinks,
    "sink-stacks-each": lambda d: [_stack_sinks(d), spreading(SHARED, "shared_experts.")(d)],
    "sink-numbered": _number_sinks,
    "deep-output": lambda d: d.reshape(lambda s: (1, *s), f"{P1}attn.wo_ud"),
    "empty-up": growing(-1, -1000, f"{P1}mlp.experts.w3"),
    "empty-output": growing(-1, -1000, f"{P1}attn.wo_ud"),
    "smaller-model": _smaller_model,
    "f32": lambda d: d.retype("F32", ""),
    "f16": lambda d: d.retype("F16", ""),
    "f32-half": lambda d: d.retype("F32", "lora_A"),
    "f8-attention": lambda d: d.retype("F8_E4M3", "wo_ud"),
    "f8-experts": lambda d: d.retype("F8_E4M3", ".experts.w2.lora_B"),
    "i32-output": lambda d: d.retype("I32", f"{P1}attn.wo_ud"),
    "nan": filling(float("nan"), f"{P1}attn.wo_ud.lora_A"),
    "inf": filling(float("inf"), f"{P1}mlp.experts.w1.lora_B"),
    "zero-b": filling(0.0, "lora_B"),
}
"""Other sizes, dtypes and numbers."""


def setting(**values: Any) -> Mutation:
    """Return a mutation that sets keys of the config."""
    return lambda draft: draft.config.update(values)


def forgetting(key: str) -> Mutation:
    """Return a mutation that leaves out a key of the config."""
    return lambda draft: draft.config.pop(key, None)


def _real_rank_pattern(draft: Draft) -> None:
    draft.config["rank_pattern"] = {"wo_ud": 1}
    growing(-2, -2, "wo_ud.lora_A")(draft)
    growing(-1, -2, "wo_ud.lora_B")(draft)


def _magnitudes(draft: Draft) -> None:
    draft.config["use_dora"] = True
    draft.tensors[f"{P0}attn.wo_ud.lora_magnitude_vector"] = Tensor((HIDDEN,))


_NATIVE = ["wq_du", "wk_dv", "wv_dv", "wr_du", "wo_ud", "w1", "w2", "w3", "gate_up_proj"]
CONFIGS: Mapping[str, Mutation] = {
    "rslora": setting(use_rslora=True),
    "rslora-alpha": setting(use_rslora=True, alpha_pattern={"wo_ud": 12}),
    "alpha-pattern": setting(alpha_pattern={"wo_ud": 12}),
    "alpha-pattern-regex": setting(alpha_pattern={".*experts.*": 12}),
    "alpha-pattern-same": setting(alpha_pattern={"wo_ud": 6}),
    "alpha-pattern-lost": setting(alpha_pattern={"o_proj": 12}),
    "rank-pattern": setting(rank_pattern={"wo_ud": 6}),
    "rank-pattern-real": _real_rank_pattern,
    "rank-pattern-lost": setting(rank_pattern={"o_proj": 6}),
    "alpha-0": setting(lora_alpha=0),
    "alpha-64": setting(lora_alpha=64),
    "alpha-text": setting(lora_alpha="6"),
    "alpha-gone": forgetting("lora_alpha"),
    "rank-said-16": setting(r=16),
    "rank-said-1": setting(r=1),
    "rank-zero": setting(r=0),
    "rank-text": setting(r="3"),
    "targets-native": setting(target_modules=_NATIVE),
    "targets-runtime": setting(target_modules=RUNTIME_TARGETS),
    "targets-no-head": setting(target_modules=RUNTIME_TARGETS[:-1]),
    "targets-half": setting(target_modules=["qkvr", "wo_ud", "gate_up_proj", "lm_head"]),
    "targets-attention": setting(target_modules=["qkvr", "wo_ud"]),
    "targets-hf": setting(target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
    "targets-all": setting(target_modules="all"),
    "targets-null": setting(target_modules=None),
    "targets-empty": setting(target_modules=[]),
    "targets-word": setting(target_modules=".*attn.*"),
    "targets-embed": setting(target_modules=[*RUNTIME_TARGETS, "embed_tokens"]),
    "dora": setting(use_dora=True),
    "dora-vectors": _magnitudes,
    "ia3": setting(peft_type="IA3"),
    "type-lower": setting(peft_type="lora"),
    "type-gone": forgetting("peft_type"),
    "saved-modules": setting(modules_to_save=["lm_head"]),
    "bias-all": setting(bias="all"),
    "lora-bias": setting(lora_bias=True),
    "pissa": setting(init_lora_weights="pissa"),
    "fan-in": setting(fan_in_fan_out=True),
    "replication": setting(layer_replication=[[0, 2], [1, 3]]),
    "other-base": setting(base_model_name_or_path="org/other", task_type="CAUSAL_LM"),
}
"""Other settings."""


def _cut(fraction: float) -> Callable[[Path], object]:
    def spoil(folder: Path) -> None:
        path = folder / "adapter_model.safetensors"
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * fraction)])

    return spoil


def _twice(folder: Path) -> None:
    path = folder / "adapter_model.safetensors"
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    first = next(iter(header))
    text = json.dumps(header)[:-1] + f", {json.dumps(first)}: {json.dumps(header[first])}}}"
    path.write_bytes(len(text).to_bytes(8, "little") + text.encode() + data[8 + size :])


def spoiling(spoil: Callable[[Path], object]) -> Mutation:
    """Return a mutation of the written folder."""
    return lambda draft: draft.spoilers.append(spoil)


def writing(name: str, data: bytes) -> Mutation:
    """Return a mutation that writes a further file."""
    return lambda draft: draft.files.update({name: data})


def _move(old: str, new: str) -> Callable[[Path], object]:
    return lambda folder: (folder / old).rename(folder / new)


FILES: Mapping[str, Mutation] = {
    "cut": spoiling(_cut(0.6)),
    "header-cut": spoiling(_cut(0.01)),
    "key-twice": spoiling(_twice),
    "no-weights": spoiling(lambda folder: (folder / "adapter_model.safetensors").unlink()),
    "no-config": spoiling(lambda folder: (folder / "adapter_config.json").unlink()),
    "config-torn": writing("adapter_config.json", b'{"r": 3'),
    "config-list": writing("adapter_config.json", b"[3]"),
    "added-tokens": writing("added_tokens.json", b'{"<a>": 500, "<b>": 501}'),
    "known-tokens": writing("added_tokens.json", b'{"<a>": 5}'),
    "second-torn": writing("more.safetensors", b"\0" * 4),
    "index-of-others": writing("model.safetensors.index.json", b'{"weight_map": {}}'),
    "index-of-it": writing(
        "model.safetensors.index.json", b'{"weight_map": {"w": "adapter_model.safetensors"}}'
    ),
    "index-torn": writing("model.safetensors.index.json", b"{"),
}
"""Faults of the files themselves."""

MUTATIONS: Mapping[str, Mutation] = {
    **RENAMED,
    **ADDED,
    **MISSING,
    **SHAPES,
    **CONFIGS,
    **FILES,
}
"""All mutations by name."""
