"""Adapters in the other dialects, as their producers and consumers spell them.

Names and layouts are from the engines' and PEFT's own behaviour; nothing here is taken from our
tables, so that a wrong row there shows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from factories import GROUPS, Module, Sizes, released_adapter_config, released_modules

PEFT_PREFIX = "base_model.model."
PARAMETERS = {
    "experts": ("gate_up_proj", "down_proj"),
    "shared_experts": ("gate_proj", "up_proj", "down_proj"),
}
"""Parameters of transformers' modules in the order of their registration."""


PROJECTIONS = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}


def numbered(modules: Iterable[Module], sizes: Sizes, *, names: str = "proj") -> list[Module]:
    """Return modules with the routed 3-D stacks replaced by one 2-D pair per expert.

    Their names are those of projections (`proj`) or stay `w`.
    """
    result: list[Module] = []
    for module in modules:
        if ".mlp.experts." not in module.name:
            result.append(module)
            continue
        holder, _, tail = module.name.rpartition(".")
        name = PROJECTIONS[tail] if names == "proj" else tail
        result += [
            Module(f"{holder}.{e}.{name}", module.in_features, module.out_features)
            for e in range(sizes.experts)
        ]
    return result


def halves(
    modules: Iterable[Module], sizes: Sizes, *, names: str = "proj", ndim: int = 3
) -> list[Module]:
    """Return modules with the routed stacks as Megatron-Bridge writes them.

    The hidden-side factor stands once under a name without a number, `[1, …]` or with two
    dimensions; the other one stands expert by expert.
    """
    result: list[Module] = []
    for module in modules:
        if ".mlp.experts." not in module.name:
            result.append(module)
            continue
        holder, _, tail = module.name.rpartition(".")
        name = PROJECTIONS[tail] if names == "proj" else tail
        once, each = ("B", "A") if tail == "w2" else ("A", "B")
        sides, shared = (module.in_features, module.out_features), 1 if ndim == 3 else 0
        result.append(Module(f"{holder}.{name}", *sides, shared, shared, factors=once))
        result += [
            Module(f"{holder}.{e}.{name}", *sides, factors=each) for e in range(sizes.experts)
        ]
    return result


def raw_modules(
    sizes: Sizes,
    groups: Iterable[str] = GROUPS,
    layers: Iterable[int] | None = None,
    *,
    routed: str = "w13_weight",
    shared: str = "shared_w13_weight",
    per_expert: bool = False,
    root: str = "model.llm.",
    head: str = "model.llm.unembed",
    head_rows: str = "unpadded",
) -> list[Module]:
    """Return modules under the raw checkpoint's names.

    Args:
        sizes: the model's.
        groups: which parts are adapted.
        layers: which layers are adapted.
        routed: `w13_weight`, `w13`, or `w` for w1 and w3 apart.
        shared: `shared_w13_weight`, `shared_w13`, or `w` for w1, w3 and w2 as they are released.
        per_expert: give each expert its own hidden-side factor.
        root: in front of `layers.`.
        head: name of the head.
        head_rows: `padded` or `unpadded`.
    """
    dense = {"gate_up_proj": "w13_dn", "down_proj": "w2_md"}
    result: list[Module] = []
    for m in released_modules(sizes, groups, layers, head_rows=head_rows, per_expert=per_expert):
        holder, _, tail = m.name.replace("language_model.layers.", f"{root}layers.").rpartition(".")
        if tail == "lm_head":
            result.append(replace(m, name=head))
        elif ".experts" in holder and routed != "w":
            result += _raw_experts(m, holder, tail, routed)
        elif ".shared_experts" in holder and shared != "w":
            stacked = _shared(m, m.name, sizes, "stack", per_expert)
            result += _raw_experts(stacked, holder, tail, shared)
        else:
            result.append(replace(m, name=f"{holder}.{dense.get(tail, tail)}"))
    return result


def _raw_experts(m: Module, holder: str, tail: str, fused: str) -> list[Module]:
    """Return w1 as gate and up in one, w2 under its name beside it, and w3 not at all."""
    if tail == "w3":
        return []
    if tail == "w1":
        return [replace(m, name=f"{holder}.{fused}", out_features=2 * m.out_features)]
    return [replace(m, name=f"{holder}.{fused.replace('w13', 'w2')}")]


def cookbook_modules(sizes: Sizes, groups: Iterable[str] = GROUPS) -> list[Module]:
    """Return what tinker-cookbook's `build_lora_adapter` makes: a prefix, experts one by one."""
    modules = numbered(released_modules(sizes, groups), sizes)
    return [
        Module(PEFT_PREFIX + m.name, m.in_features, m.out_features, m.experts_a, m.experts_b)
        for m in modules
    ]


def vllm_modules(
    sizes: Sizes,
    groups: Iterable[str] = GROUPS,
    layers: Iterable[int] | None = None,
    *,
    one_by_one: bool = False,
    root: str = "language_model.",
    head_rows: str = "unpadded",
) -> list[Module]:
    """Return modules that vLLM applies: sink experts under their runtime name."""
    modules = released_modules(sizes, groups, layers, head_rows=head_rows)
    if one_by_one:
        modules = numbered(modules, sizes)
    result = []
    for m in modules:
        name = m.name.replace(".shared_experts.", ".sink_experts.")
        name = name.replace("language_model.layers.", f"{root}layers.")
        if root != "language_model." and name.endswith("lm_head"):
            name = "lm_head"
        result.append(Module(name, m.in_features, m.out_features, m.experts_a, m.experts_b))
    return result


def raw_dense_name(name: str) -> str:
    """Return the raw checkpoint's name of a dense module, which vLLM renames itself."""
    return name.replace(".gate_up_proj", ".w13_dn").replace(".mlp.down_proj", ".mlp.w2_md")


def interleave_dense(tensors: dict[str, torch.Tensor]) -> None:
    """Reorder the rows of each dense gate_up lora_B from [gate; up] to g0, u0, g1, u1, …

    Numbers are random, so that under the raw name any order is as good.
    """
    for name, tensor in tensors.items():
        if name.endswith(".mlp.gate_up_proj.lora_B.weight"):
            gate, up = tensor.chunk(2)
            tensors[name] = torch.stack([gate, up], 1).reshape(tensor.shape)


def sglang_modules(
    sizes: Sizes,
    groups: Iterable[str] = GROUPS,
    layers: Iterable[int] | None = None,
    *,
    attention: str = "split",
    dense: str = "fused",
    routed: str = "w",
    shared: str = "flat",
    per_expert: bool = False,
    root: str = "language_model.",
    head: str = "language_model.lm_head",
) -> list[Module]:
    """Return modules under the names that SGLang's loader takes.

    Args:
        sizes: the model's.
        groups: which parts are adapted.
        layers: which layers are adapted.
        attention: `split`, `qkvr` (A of r rows) or `qkvr4` (A of 4r rows).
        dense: `fused`, `proj` (gate_proj, up_proj) or `w` (w1, w3, w2).
        routed: `w`, `proj`, `fused` (gate_up_proj), `numbered`, `numbered w` or `halves`.
        shared: `flat` or `stack` (three dimensions).
        per_expert: give each expert its own hidden-side factor.
        root: in front of `layers.`.
        head: name of the head.
    """
    modules = released_modules(sizes, groups, layers, per_expert=per_expert)
    if routed in ("numbered", "numbered w"):
        modules = numbered(modules, sizes, names="w" if routed.endswith("w") else "proj")
    if routed == "halves":
        modules = halves(modules, sizes)
    result: list[Module] = []
    for m in modules:
        layer_root, _, tail = m.name.partition(".mlp." if ".mlp." in m.name else ".attn.")
        layer_root = layer_root.replace("language_model.", root)
        if m.name.endswith("lm_head"):
            result.append(Module(head, m.in_features, m.out_features))
        elif ".attn." in m.name:
            result += _attention(m, f"{layer_root}.attn.", tail, sizes, attention)
        elif tail.startswith("shared_experts."):
            result.append(_shared(m, f"{layer_root}.mlp.{tail}", sizes, shared, per_expert))
        elif tail.startswith("experts."):
            result += _routed(m, f"{layer_root}.mlp.", tail, routed)
        else:
            result += _dense(m, f"{layer_root}.mlp.", tail, sizes, dense)
    return result


def _attention(m: Module, root: str, tail: str, sizes: Sizes, form: str) -> list[Module]:
    if form == "split" or tail == "wo_ud":
        return [Module(root + tail, m.in_features, m.out_features)]
    if tail != "wq_du":
        return []
    layer = int(root.split("layers.")[1].split(".")[0])
    rows = sizes.query + 2 * sizes.key(layer) + sizes.rel
    return [Module(f"{root}qkvr", sizes.hidden, rows, rank_factor=4 if form == "qkvr4" else 1)]


def _dense(m: Module, root: str, tail: str, sizes: Sizes, form: str) -> list[Module]:
    if form == "fused":
        return [Module(root + tail, m.in_features, m.out_features)]
    gate, up, down = ("w1", "w3", "w2") if form == "w" else ("gate_proj", "up_proj", "down_proj")
    if tail == "down_proj":
        return [Module(root + down, m.in_features, m.out_features)]
    return [Module(root + name, sizes.hidden, sizes.dense) for name in (gate, up)]


def _routed(m: Module, root: str, tail: str, form: str) -> list[Module]:
    name = tail.rpartition(".")[2]
    if form == "fused" and name == "w3":
        return []
    width = m.out_features * (2 if form == "fused" and name == "w1" else 1)
    names = {
        "proj": {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"},
        "fused": {"w1": "gate_up_proj", "w2": "down_proj"},
    }.get(form, {})
    new = f"{root}{tail.removesuffix(name)}{names.get(name, name)}"
    return [replace(m, name=new, out_features=width)]


def _shared(m: Module, name: str, sizes: Sizes, form: str, per_expert: bool) -> Module:
    if form == "flat":
        return Module(name, m.in_features, m.out_features)
    S, outer = sizes.shared, sizes.shared if per_expert else 1
    if name.endswith("w2"):
        return Module(name, sizes.inner, sizes.hidden, S, outer)
    return Module(name, sizes.hidden, sizes.inner, outer, S)


def peft_modules(
    sizes: Sizes,
    groups: Iterable[str] = GROUPS,
    layers: Iterable[int] | None = None,
    *,
    root: str = "model.language_model.",
    parameters: Mapping[str, Iterable[str]] = PARAMETERS,
) -> list[Module]:
    """Return PEFT's modules: Linear layers, and packed pairs for the targeted parameters."""
    groups, H = set(groups), sizes.hidden
    modules: list[Module] = []
    for i in range(sizes.layers) if layers is None else layers:
        L = f"{PEFT_PREFIX}{root}layers.{i}."
        if "attention" in groups:
            modules += [
                Module(f"{L}self_attn.q_proj", H, sizes.query),
                Module(f"{L}self_attn.k_proj", H, sizes.key(i)),
                Module(f"{L}self_attn.v_proj", H, sizes.key(i)),
                Module(f"{L}self_attn.r_proj", H, sizes.rel),
                Module(f"{L}self_attn.o_proj", sizes.query, H),
            ]
        if i < sizes.num_dense:
            if "dense" in groups:
                modules += [
                    Module(f"{L}mlp.gate_proj", H, sizes.dense),
                    Module(f"{L}mlp.up_proj", H, sizes.dense),
                    Module(f"{L}mlp.down_proj", sizes.dense, H),
                ]
            continue
        if "routed" in groups:
            modules += _packed(f"{L}mlp.experts", sizes.experts, sizes, parameters["experts"])
        if "shared" in groups:
            targeted = parameters["shared_experts"]
            modules += _packed(f"{L}mlp.shared_experts", sizes.shared, sizes, targeted)
    if "head" in groups:
        modules.append(Module(f"{PEFT_PREFIX}lm_head", H, sizes.vocab))
    return modules


def _packed(holder: str, experts: int, sizes: Sizes, targeted: Iterable[str]) -> list[Module]:
    """Return the wrappers nested on a module: the parameter registered first lies innermost."""
    registered = PARAMETERS[holder.rpartition(".")[2]]
    present = [name for name in registered if name in set(targeted)]
    modules = []
    for depth, name in enumerate(reversed(present)):
        down = name == "down_proj"
        width = sizes.inner * (2 if name == "gate_up_proj" else 1)
        modules.append(
            Module(
                holder + ".base_layer" * depth,
                sizes.inner if down else sizes.hidden,
                sizes.hidden if down else width,
                packed=experts,
                table_name=f"{holder}.{name}",
            )
        )
    return modules


def swap_packed(modules: Iterable[Module]) -> list[Module]:
    """Return PEFT's modules as its versions before 0.19.1 have them: in and out exchanged."""
    return [
        replace(m, in_features=m.out_features, out_features=m.in_features) if m.packed else m
        for m in modules
    ]


def peft_config(modules: Iterable[Module], rank: int, alpha: float, **changes: Any) -> dict:
    """Return adapter_config.json with full names as targets."""
    modules = list(modules)
    return {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": [m.config_name for m in modules if not m.packed] or None,
        "target_parameters": [m.config_name for m in modules if m.packed] or None,
        "bias": "none",
        "inference_mode": True,
        "peft_version": "0.21.2",
    } | changes


def vllm_config(modules: Iterable[Module], rank: int, alpha: float, **changes: Any) -> dict:
    """Return adapter_config.json with a list of last name parts."""
    targets = sorted({m.name.rpartition(".")[2] for m in modules})
    return released_adapter_config(rank, alpha, target_modules=targets, **changes)


SGLANG_TARGETS = ["down_proj", "gate_up_proj", "lm_head", "qkvr", "wo_ud"]


def sglang_config(rank: int, alpha: float, **changes: Any) -> dict:
    """Return adapter_config.json with the runtime names that SGLang accepts."""
    return released_adapter_config(rank, alpha, target_modules=SGLANG_TARGETS, **changes)


HEADS = ("lm_head", "unembed_tokens", "unembed")
"""Last parts of the head's names."""


def zero_padding_rows(sizes: Sizes, tensors: dict[str, torch.Tensor]) -> None:
    """Set the head's rows above the unpadded vocabulary to zero, as a trained head has them."""
    for name, tensor in tensors.items():
        if name.endswith(tuple(f"{head}.lora_B.weight" for head in HEADS)):
            tensor[sizes.unpadded :] = 0


def tie_gates(tensors: dict[str, torch.Tensor]) -> None:
    """Give w3 (up) the very A of w1 (gate) wherever both have the same rank."""
    for gate, up in ((".w1.lora_A.", ".w3.lora_A."), (".gate_proj.lora_A.", ".up_proj.lora_A.")):
        for name in [name for name in tensors if gate in name]:
            other = name.replace(gate, up)
            if other in tensors and tensors[other].shape == tensors[name].shape:
                tensors[other] = tensors[name].clone()


def repeat_outer(tensors: dict[str, torch.Tensor]) -> None:
    """Make the hidden-side factors of all experts copies of expert 0's (stacks and numbered)."""
    for name, tensor in tensors.items():
        is_down = ".w2." in name or (".experts." in name and ".down_proj." in name)
        is_outer = ".experts." in name and is_down == (".lora_B." in name)
        if not is_outer:
            continue
        parts = name.split(".")
        if tensor.ndim == 3:
            tensors[name] = tensor[:1].expand(tensor.shape).contiguous()
        elif parts[-4].isdecimal():
            parts[-4] = "0"
            tensors[name] = tensors[".".join(parts)].clone()


def rng_of(seed: int) -> np.random.Generator:
    """Return the numbers' source."""
    return np.random.default_rng(seed)
