"""What may be changed of an adapter, one thing at a time: names and what is there. Data.

Each mutation has a name and changes a draft in place; any of them may follow any other.
"""

from collections.abc import Callable, Mapping

from checks.adapter_folders import HIDDEN, INNER, QUERY, VOCAB
from conformance.sglang_drafts import RANK, Draft, Tensor

Mutation = Callable[[Draft], object]
P1 = "language_model.layers.1."
P0 = "language_model.layers.0."


def renaming(*pairs: tuple[str, str], where: str = "") -> Mutation:
    """Return a mutation that replaces parts of names, in order."""

    def change(name: str) -> str:
        for old, new in pairs if where in name else ():
            name = name.replace(old, new)
        return name

    return lambda draft: draft.rename(change)


def prefixing(prefix: str) -> Mutation:
    """Return a mutation that puts a text in front of every name."""
    return lambda draft: draft.rename(prefix.__add__)


def dropping(*parts: str) -> Mutation:
    """Return a mutation that leaves out the tensors in whose names all parts are."""
    return lambda draft: draft.drop(*parts)


def adding(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> Mutation:
    """Return a mutation that adds a module."""
    return lambda draft: draft.add({name: (a, b)})


def copying(old: str, new: str, where: str = "") -> Mutation:
    """Return a mutation that has tensors a second time, under another name."""

    def mutate(draft: Draft) -> None:
        found = {n: t for n, t in draft.tensors.items() if old in n and where in n}
        draft.tensors |= {n.replace(old, new): t for n, t in found.items()}

    return mutate


def holding(name: str, *shape: int) -> Mutation:
    """Return a mutation that adds a tensor that is no factor."""
    return lambda draft: draft.tensors.update({name: Tensor(shape)})


def _second_file(draft: Draft) -> None:
    draft.second = {f"{P0}attn.wo_ud.lora_B.weight": Tensor((HIDDEN, RANK))}
    draft.second["language_model.norm.lora_A.weight"] = Tensor((RANK, HIDDEN))


def _split_dense(draft: Draft) -> None:
    for half, name in (("gate_up_proj", "gate_proj"), ("gate_up_proj", "up_proj")):
        copying(f"mlp.{half}", f"mlp.{name}")(draft)
    draft.drop("mlp.gate_up_proj")
    draft.reshape(lambda shape: (shape[0] // 2, *shape[1:]), "layers.0.mlp.gate_proj.lora_B")
    draft.reshape(lambda shape: (shape[0] // 2, *shape[1:]), "layers.0.mlp.up_proj.lora_B")


RENAMED: Mapping[str, Mutation] = {
    "prefix-1": prefixing("base_model.model."),
    "prefix-2": prefixing("base_model.model.model."),
    "prefix-twice": prefixing("base_model.model.base_model.model."),
    "prefix-llm": renaming(("language_model.", "model.llm.")),
    "prefix-none": renaming(("language_model.", "")),
    "prefix-mtp": renaming(("language_model.layers.2", "model.mtp.layers.2")),
    "prefix-visual": renaming(("language_model.layers.0", "visual.layers.0")),
    "raw-names": renaming(
        ("language_model.", "model.llm."),
        ("lm_head", "unembed"),
        ("mlp.gate_up_proj", "mlp.w13_dn"),
        ("mlp.down_proj", "mlp.w2_md"),
    ),
    "model-layers": renaming(("language_model.l", "model.l")),
    "default-names": renaming((".weight", ".default.weight")),
    "no-weight-ending": renaming((".weight", "")),
    "sink-names": renaming(("shared_experts", "sink_experts")),
    "sink-one-layer": renaming(("shared_experts", "sink_experts"), where="layers.1."),
    "unembed": renaming(("lm_head", "unembed")),
    "unembed-tokens": renaming(("language_model.lm_head", "model.unembed_tokens")),
    "head-model": renaming(("language_model.lm_head", "model.lm_head")),
    "head-bare": renaming(("language_model.lm_head", "lm_head")),
    "hf-attention": renaming(
        ("attn.wq_du", "self_attn.q_proj"),
        ("attn.wk_dv", "self_attn.k_proj"),
        ("attn.wv_dv", "self_attn.v_proj"),
        ("attn.wr_du", "self_attn.r_proj"),
        ("attn.wo_ud", "self_attn.o_proj"),
    ),
    "hf-experts": renaming(
        (".w1.", ".gate_proj."), (".w3.", ".up_proj."), (".w2.", ".down_proj."), where="experts"
    ),
    "typo-all": renaming(("wq_du", "wq_dv")),
    "typo-one": renaming(("wo_ud", "wo_du"), where="layers.1."),
    "typo-suffix": renaming(("wo_ud", "wo_ud_x"), where="layers.1."),
    "typo-expert": renaming(("experts.w1", "experts.w4"), where="layers.2."),
    "typo-shared": renaming(("shared_experts", "share_experts")),
    "layer-9": renaming(("layers.2.", "layers.9.")),
    "layers-swapped": renaming(
        ("layers.0.", "layers.x."), ("layers.1.", "layers.0."), ("layers.x.", "layers.1.")
    ),
    "dense-to-1": renaming(("layers.0.mlp.", "layers.1.mlp.")),
    "experts-to-0": renaming(("layers.1.mlp.", "layers.0.mlp.")),
    "dense-split": _split_dense,
    "dense-w2": renaming(("mlp.down_proj", "mlp.w2"), where="layers.0."),
    "peft-outer": renaming(("mlp.experts.w2", "mlp.experts")),
}
"""Other names for what is there."""

ADDED: Mapping[str, Mutation] = {
    "both-names": copying("shared_experts", "sink_experts"),
    "copy-prefixed": copying("language_model.", "base_model.model.language_model.", "wo_ud"),
    "copy-behind": copying("language_model.layers.1.", "model.layers.1.", "experts.w"),
    "copy-head": copying("language_model.lm_head", "model.lm_head"),
    "copy-unembed": copying("lm_head", "unembed_tokens"),
    "copy-gate": copying("experts.w1", "experts.gate_proj"),
    "copy-expert": copying("experts.w2", "experts.0.down_proj"),
    "mtp-plain": adding("model.mtp.layers.0.attn.wo_ud", (RANK, QUERY), (HIDDEN, RANK)),
    "mtp-block": adding("mtp.layers.0.transformer_block.attn.wo_ud", (RANK, QUERY), (HIDDEN, RANK)),
    "mtp-query": adding("model.mtp.layers.0.attn.wq_du", (RANK, HIDDEN), (QUERY, RANK)),
    "embed": adding("language_model.embed_tokens", (RANK, VOCAB), (HIDDEN, RANK)),
    "embed-padded": adding("language_model.embed_tokens", (RANK, 192), (HIDDEN, RANK)),
    "router": adding(f"{P1}mlp.gate", (RANK, HIDDEN), (6, RANK)),
    "layer-head": adding(f"{P1}lm_head", (RANK, HIDDEN), (VOCAB, RANK)),
    "norm": adding("language_model.norm", (RANK, HIDDEN), (HIDDEN, RANK)),
    "wrong-kind": adding(f"{P1}mlp.down_proj", (RANK, INNER), (HIDDEN, RANK)),
    "dense-experts": adding(f"{P0}mlp.experts.w2", (4, RANK, INNER), (1, HIDDEN, RANK)),
    "base-beside": holding(f"{P0}attn.wo_ud.base_layer.weight", HIDDEN, QUERY),
    "head-base": holding("language_model.lm_head.base_layer.weight", VOCAB, HIDDEN),
    "head-whole": holding("language_model.lm_head.weight", VOCAB, HIDDEN),
    "head-saved": holding("language_model.lm_head.modules_to_save.weight", VOCAB, HIDDEN),
    "magnitude": holding(f"{P0}attn.wo_ud.lora_magnitude_vector", HIDDEN),
    "bias-tensor": holding(f"{P0}attn.wo_ud.lora_B.bias", HIDDEN),
    "norm-weight": holding("language_model.norm.weight", HIDDEN),
    "layer-norm-weight": holding(f"{P0}attn_norm.weight", HIDDEN),
    "new-tokens": holding("language_model.input_embeddings.weight", 2, HIDDEN),
    "second-file": _second_file,
}
"""More than there was."""

_ONE_FACTOR = {
    "output": f"{P1}attn.wo_ud",
    "query": f"{P1}attn.wq_du",
    "rel": f"{P1}attn.wr_du",
    "dense": f"{P0}mlp.gate_up_proj",
    "dense-down": f"{P0}mlp.down_proj",
    "gate": f"{P1}mlp.experts.w1",
    "up": f"{P1}mlp.experts.w3",
    "down": f"{P1}mlp.experts.w2",
    "sink-gate": f"{P1}mlp.shared_experts.w1",
    "sink-up": f"{P1}mlp.shared_experts.w3",
    "sink-down": f"{P1}mlp.shared_experts.w2",
    "head": "lm_head",
    "expert": "experts.2.down_proj",
    "expert-gate": "experts.3.gate_proj",
}

MISSING: Mapping[str, Mutation] = {
    **{
        f"no-{f.lower()}-{k}": dropping(m, f"lora_{f}")
        for k, m in _ONE_FACTOR.items()
        for f in "AB"
    },
    **{f"no-{key}-1": dropping(module) for key, module in _ONE_FACTOR.items()},
    "no-query": dropping("wq_du"),
    "no-rel": dropping("wr_du"),
    "no-attention": dropping(".attn."),
    "no-output": dropping("wo_ud"),
    "no-gate": dropping(".experts.w1"),
    "no-up": dropping(".experts.w3"),
    "no-down": dropping(".experts.w2"),
    "no-sink": dropping("shared_experts"),
    "no-sink-gate": dropping("shared_experts.w1"),
    "no-routed": dropping(".experts."),
    "no-dense": dropping("layers.0.mlp."),
    "no-head": dropping("lm_head"),
    "no-layer": dropping("layers.1."),
    "no-last-expert": dropping("experts.3."),
    "no-first-expert": dropping("experts.0."),
    "only-first-expert": lambda draft: [draft.drop(f"experts.{i}.") for i in (1, 2, 3)],
}
"""Less than there was."""
