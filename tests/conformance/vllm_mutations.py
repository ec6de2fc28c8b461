"""Changes of an adapter's draft, one fault each; several can be made one after the other."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from checks.adapter_folders import DENSE, EXPERTS, HIDDEN, INNER, QUERY, REL
from conformance.vllm_adapters import LAYER, tensors_of
from conformance.vllm_drafts import Draft, Shape

Mutation = Callable[[Draft], Draft]


def _name(old: str, new: str) -> Mutation:
    return lambda draft: draft.renamed(lambda name: name.replace(old, new))


def _pattern(old: str, new: str) -> Mutation:
    return lambda draft: draft.renamed(lambda name: re.sub(old, new, name))


def _front(prefix: str) -> Mutation:
    return lambda draft: draft.renamed(lambda name: prefix + name)


def _drop(*parts: str) -> Mutation:
    return lambda draft: draft.without(*parts)


def _add(module: str, a: Shape, b: Shape, dtype: str = "BF16") -> Mutation:
    return lambda draft: draft.with_tensors(tensors_of({module: (a, b)}), dtype)


def _tensor(name: str, shape: Shape) -> Mutation:
    return lambda draft: draft.with_tensors({name: shape})


def _shape(part: str, change: Callable[[Shape], Shape]) -> Mutation:
    return lambda draft: draft.reshaped(lambda n, s: change(s) if part in n else s)


def _size(old: int, new: int) -> Mutation:
    return lambda draft: draft.reshaped(lambda n, s: tuple(new if d == old else d for d in s))


def _rank(part: str, rank: int) -> Mutation:
    """Every factor whose name has the part, with another rank."""

    def change(name: str, shape: Shape) -> Shape:
        if part not in name or len(shape) < 2:
            return shape
        if ".lora_A." in name:
            return (*shape[:-2], rank, shape[-1])
        return (*shape[:-1], rank) if ".lora_B." in name else shape

    return lambda draft: draft.reshaped(change)


def _set(**changes: object) -> Mutation:
    return lambda draft: draft.configured(**changes)


def _dtype(part: str, dtype: str) -> Mutation:
    def change(draft: Draft) -> Draft:
        tensors = {n: (dtype if part in n else d, s) for n, (d, s) in draft.tensors.items()}
        return replace(draft, tensors=tensors)

    return change


def _first(part: str, value: float) -> Mutation:
    def change(draft: Draft) -> Draft:
        found = {name: value for name in draft.tensors if part in name}
        return replace(draft, first={**draft.first, **found})

    return change


def _again(old: str, new: str, only: str = "") -> Mutation:
    """The same tensors once more under other names."""

    def change(draft: Draft) -> Draft:
        copies = {
            name.replace(old, new): tensor
            for name, tensor in draft.tensors.items()
            if old in name and only in name
        }
        return replace(draft, tensors={**copies, **draft.tensors})

    return change


def _expanded(*parts: str) -> Mutation:
    """Outer factors with a copy for each expert."""

    def change(name: str, shape: Shape) -> Shape:
        if shape[:1] == (1,) and len(shape) == 3 and any(part in name for part in parts):
            return (EXPERTS, *shape[1:])
        return shape

    return lambda draft: draft.reshaped(change)


def _spoil(change: Callable[[Path], None]) -> Mutation:
    return lambda draft: replace(draft, spoil=change)


def _cut_to(share: float) -> Callable[[Path], None]:
    def cut(folder: Path) -> None:
        path = folder / "adapter_model.safetensors"
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * share)])

    return cut


def _twice_in_header(folder: Path) -> None:
    path = folder / "adapter_model.safetensors"
    data = path.read_bytes()
    one, other = b"1.attn.wq_du.lora_A", b"1.attn.wk_dv.lora_A"
    path.write_bytes(data.replace(one, other, 1))


MUTATIONS: dict[str, Mutation] = {
    # names
    "wrapped": _front("base_model.model."),
    "wrapped-twice": _front("base_model.model.base_model.model."),
    "wrapped-and-model": _front("base_model.model.model."),
    "model-in-front": _front("model."),
    "upper-case": lambda draft: draft.renamed(str.upper),
    "model-layers": _name(LAYER, "model.layers."),
    "llm-layers": _name(LAYER, "model.llm.layers."),
    "bare-layers": _name(LAYER, "layers."),
    "raw-dense": _pattern(r"mlp\.gate_up_proj", "mlp.w13_dn"),
    "raw-head": _name("language_model.lm_head", "model.llm.unembed"),
    "bare-head": _name("language_model.lm_head", "lm_head"),
    "model-head": _name("language_model.lm_head", "model.lm_head"),
    "unembed": _name("language_model.lm_head", "language_model.unembed"),
    "unembed-tokens": _name("language_model.lm_head", "model.unembed_tokens"),
    "released-shared": _name(".sink_experts.", ".shared_experts."),
    "shared-on-one-layer": _name("1.mlp.sink_experts.", "1.mlp.shared_experts."),
    "typo": _name("1.attn.wq_du", "1.attn.wq_dv"),
    "hf-attention": _name("attn.wq_du", "self_attn.q_proj"),
    "dense-w1": _name("0.mlp.gate_up_proj", "0.mlp.w1"),
    "default-in-name": _name(".weight", ".default.weight"),
    "no-weight-in-name": _name(".weight", ""),
    "layer-seven": _name("layers.2.", "layers.7."),
    "layer-one-dense": _name("0.mlp.gate_up_proj", "1.mlp.gate_up_proj"),
    "layer-with-zero": _name("layers.2.", "layers.02."),
    "extra-dot": _name("attn.wo_ud", "attn..wo_ud"),
    "block-in-path": _name("2.attn.", "2.block.attn."),
    # tensors more
    "router": _add(f"{LAYER}1.mlp.gate", (2, HIDDEN), (EXPERTS + 2, 2)),
    "embedding": _add("language_model.embed_tokens", (2, 192), (HIDDEN, 2)),
    "draft-layer": _add("model.mtp.layers.0.attn.wq_du", (2, HIDDEN), (QUERY, 2)),
    "layer-nine": _add(f"{LAYER}9.attn.wo_ud", (2, QUERY), (HIDDEN, 2)),
    "down-on-experts": _add(f"{LAYER}1.mlp.down_proj", (2, DENSE), (HIDDEN, 2)),
    "sink-on-dense": _add(f"{LAYER}0.mlp.sink_experts.w2", (2, 2 * INNER), (HIDDEN, 2)),
    "experts-on-dense": _add(f"{LAYER}0.mlp.experts.w2", (EXPERTS, 2, INNER), (1, HIDDEN, 2)),
    "w1-on-dense": _add(f"{LAYER}0.mlp.w1", (2, HIDDEN), (DENSE, 2)),
    "base-layer-elsewhere": _add(f"{LAYER}1.attn.wo_ud.base_layer", (2, QUERY), (HIDDEN, 2)),
    "shared-as-well": _again(".sink_experts.", ".shared_experts."),
    "head-copy": _tensor("language_model.lm_head.base_layer.weight", (192, HIDDEN)),
    "embedding-copy": _tensor("language_model.embed_tokens.base_layer.weight", (192, HIDDEN)),
    "copy-elsewhere": _tensor(f"{LAYER}1.attn.wo_ud.base_layer.weight", (HIDDEN, QUERY)),
    "saved-head": lambda draft: draft.with_tensors(
        {"language_model.lm_head.weight": (192, HIDDEN)}
    ).configured(modules_to_save=["lm_head"]),
    "score": _tensor("score.weight", (2, HIDDEN)),
    "magnitude": _tensor(f"{LAYER}1.attn.wo_ud.lora_magnitude_vector", (HIDDEN,)),
    "wo-twice": _again(f"{LAYER}1.attn.wo_ud", "model.layers.1.attn.wo_ud"),
    "wo-twice-earlier": _again(f"{LAYER}1.attn.wo_ud", "base_model.model.layers.1.attn.wo_ud"),
    "wo-b-twice": _again(f"{LAYER}1.attn.wo_ud", "model.llm.layers.1.attn.wo_ud", ".lora_B."),
    "wo-a-twice": _again(f"{LAYER}1.attn.wo_ud", "model.llm.layers.1.attn.wo_ud", ".lora_A."),
    "q-twice": _again(f"{LAYER}2.attn.wq_du", f"base_model.model.{LAYER}2.attn.wq_du"),
    "head-twice": _again("language_model.lm_head", "lm_head"),
    "w2-twice": _again(f"{LAYER}1.mlp.experts.w2", "model.layers.1.mlp.experts.w2"),
    # tensors less
    "no-a-of-q": _drop("1.attn.wq_du.lora_A"),
    "no-b-of-k": _drop("1.attn.wk_dv.lora_B"),
    "no-a-of-o": _drop("2.attn.wo_ud.lora_A"),
    "no-a-of-r": _drop(".attn.wr_du.lora_A"),
    "no-a-of-sink-w3": _drop("1.mlp.sink_experts.w3.lora_A"),
    "no-r": _drop(".wr_du."),
    "no-w2": _drop(".experts.w2."),
    "no-down-of-experts": _drop("1.mlp.experts.w2.", "1.mlp.experts.0.down_proj."),
    "no-experts": _drop(".mlp.experts"),
    "no-sink": _drop(".sink_experts.", ".shared_experts."),
    "no-layer": _drop("layers.1."),
    "no-head": _drop("lm_head"),
    "no-attention": _drop(".attn."),
    # shapes
    "narrow-hidden": _size(HIDDEN, 64),
    "wide-hidden": _size(HIDDEN, 128),
    "narrow-dense": _size(DENSE, 40),
    "short-gate-up": _shape("gate_up_proj.lora_B", lambda s: (s[0] // 2, *s[1:])),
    "short-q": _shape("1.attn.wq_du.lora_B", lambda s: (QUERY - 32, *s[1:])),
    "short-r": _shape("2.attn.wr_du.lora_B", lambda s: (REL - 12, *s[1:])),
    "narrow-o": _shape("1.attn.wo_ud.lora_A", lambda s: (s[0], QUERY - 64)),
    "kv-swap": _shape(".attn.wk_dv.lora_B", lambda s: (96 - s[0], *s[1:])),
    "v-of-global": _shape("0.attn.wv_dv.lora_B", lambda s: (32, *s[1:])),
    "short-sink": _shape("2.mlp.sink_experts.w1.lora_B", lambda s: (INNER, *s[1:])),
    "narrow-sink-down": _shape("1.mlp.sink_experts.w2.lora_A", lambda s: (s[0], INNER)),
    "narrow-experts": _shape(".mlp.experts.w2.lora_A", lambda s: (*s[:-1], INNER - 4)),
    "short-experts": _shape("1.mlp.experts.w3.lora_B", lambda s: (s[0], INNER - 6, s[2])),
    "short-one-by-one": _shape("_proj.lora_B", lambda s: (s[0] - 3, *s[1:])),
    "padded-head": _shape("lm_head.lora_B", lambda s: (192, *s[1:])),
    "head-between": _shape("lm_head.lora_B", lambda s: (186, *s[1:])),
    "short-head": _shape("lm_head.lora_B", lambda s: (170, *s[1:])),
    "long-head": _shape("lm_head.lora_B", lambda s: (200, *s[1:])),
    "narrow-head": _shape("lm_head.lora_A", lambda s: (s[0], HIDDEN - 1)),
    "turned-a": _shape("1.mlp.experts.w1.lora_A", lambda s: (s[0], s[2], s[1])),
    "turned-o": _shape("1.attn.wo_ud.lora_A", lambda s: s[::-1]),
    "flat-a": _shape("2.attn.wo_ud.lora_A", lambda s: (s[0] * s[1],)),
    "empty-a": _shape("1.attn.wo_ud.lora_A", lambda s: (0, s[1])),
    "empty-pair": _rank("1.attn.wo_ud", 0),
    "empty-rows": _shape("1.attn.wv_dv.lora_B", lambda s: (0, s[1])),
    "outer-w1-per-expert": _expanded(".experts.w1.lora_A"),
    "outer-w2-per-expert": _expanded("2.mlp.experts.w2.lora_B"),
    "outer-per-expert": _expanded(".experts.w"),
    "outer-two": _shape("1.mlp.experts.w3.lora_A", lambda s: (2, *s[1:])),
    "three-experts": _shape("1.mlp.experts.w1.lora_B", lambda s: (3, *s[1:])),
    "inner-shared": _shape("1.mlp.experts.w2.lora_A", lambda s: (1, *s[1:])),
    # ranks
    "rank-4": _rank("", 4),
    "rank-1": _rank("", 1),
    "rank-4-of-q": _rank("1.attn.wq_du", 4),
    "rank-4-of-experts": _rank("1.mlp.experts.", 4),
    "rank-4-of-a": _rank("1.attn.wo_ud.lora_A", 4),
    "rank-4-of-b": _rank("2.attn.wk_dv.lora_B", 4),
    "rank-8-told": lambda draft: _rank("", 8)(draft).configured(r=8),
    "rank-pattern-kept": lambda draft: _rank("attn.wq_du", 4)(draft).configured(
        rank_pattern={"wq_du": 4}
    ),
    # config
    "r-16": _set(r=16),
    "r-1": _set(r=1),
    "r-missing": _set(r=...),
    "alpha-missing": _set(lora_alpha=...),
    "alpha-1": _set(lora_alpha=1),
    "rslora": _set(use_rslora=True),
    "rank-pattern": _set(rank_pattern={"wo_ud": 4}),
    "rank-pattern-two-keys": _set(rank_pattern={"1.attn.wo_ud": 2, "wo_ud": 4}),
    "alpha-pattern": _set(alpha_pattern={"wo_ud": 3, r"experts\.w1": 1}),
    "alpha-pattern-elsewhere": _set(alpha_pattern={"q_proj": 3}),
    "dora": _set(use_dora=True),
    "dora-with-vectors": lambda draft: draft.with_tensors(
        {f"{LAYER}1.attn.wo_ud.lora_magnitude_vector": (HIDDEN,)}
    ).configured(use_dora=True),
    "bias": _set(bias="all"),
    "pissa": _set(init_lora_weights="pissa"),
    "ia3": _set(peft_type="IA3"),
    "no-peft-type": _set(peft_type=...),
    "turned-config": _set(fan_in_fan_out=True),
    "token-indices": _set(trainable_token_indices=[1, 2]),
    "targets-listed": _set(target_modules=["wq_du", "wk_dv", "w1"]),
    "targets-missing": _set(target_modules=...),
    "layers-listed": _set(layers_to_transform=[0]),
    "save-nothing": _set(modules_to_save={}),
    # numbers
    "float32": _dtype("", "F32"),
    "float16": _dtype("", "F16"),
    "float64-of-o": _dtype(".wo_ud.", "F64"),
    "integers-of-o": _dtype("1.attn.wo_ud.", "I8"),
    "nan": _first("1.attn.wo_ud.lora_B", float("nan")),
    "nan-in-experts": _first("1.mlp.experts.w2.lora_A", float("nan")),
    "infinity": _first("0.attn.wq_du.lora_A", float("inf")),
    # files
    "stamped-released": lambda draft: replace(draft, metadata={"inkling.dialect": "tinker"}),
    "stamped-vllm": lambda draft: replace(draft, metadata={"inkling.dialect": "vllm"}),
    "cut-file": _spoil(_cut_to(0.6)),
    "cut-header": _spoil(_cut_to(0.01)),
    "twice-in-header": _spoil(_twice_in_header),
    "no-config": _spoil(lambda folder: (folder / "adapter_config.json").unlink()),
}
"""A name for each change of which pairs are drawn."""

FURTHER: dict[str, Mutation] = {
    "experts-in-base-layer": _name("1.mlp.experts.w", "1.mlp.experts.base_layer.w"),
    "head-as-embedding": _pattern(r"lm_head\.lora_([AB])\.weight", r"lm_head.lora_embedding_\1"),
    "vocabulary-nowhere": lambda draft: draft.with_tensors(
        {
            f"{LAYER}9.attn.wo_ud.lora_embedding_A": (2, 180),
            f"{LAYER}9.attn.wo_ud.lora_embedding_B": (HIDDEN, 2),
        }
    ),
}
"""Changes that are tried alone, so that the pairs stay those of the record."""
