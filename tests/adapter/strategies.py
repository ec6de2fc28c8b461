"""Random adapters of every dialect: sizes, parts, forms, ranks, patterns and dtypes."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import forms
import numpy as np
import torch
from hypothesis import strategies as st
from lora_factors import Config

from factories import (
    GROUPS,
    Module,
    Sizes,
    any_bits,
    released_adapter_config,
    released_modules,
    small_integers,
    write_adapter,
)

Edit = Callable[[dict[str, torch.Tensor]], None]


@dataclass(frozen=True)
class Example:
    """An adapter to be written."""

    dialect: str
    sizes: Sizes
    modules: tuple[Module, ...]
    config: dict[str, Any]
    dtype: str
    seed: int
    edits: tuple[Edit, ...]
    any_bits: bool = False

    def write(self, folder: Path) -> Path:
        """Write the adapter and return its folder."""

        def edit(tensors: dict[str, torch.Tensor]) -> None:
            for one in self.edits:
                one(tensors)
            forms.zero_padding_rows(self.sizes, tensors)

        return write_adapter(
            folder,
            self.modules,
            self.config,
            dtype=self.dtype,
            rng=np.random.default_rng(self.seed),
            rank_of=Config(self.config).rank,
            fill=any_bits if self.any_bits else small_integers,
            edit=edit,
        )


@st.composite
def sizes(draw: st.DrawFn) -> Sizes:
    """Return a small model; widths may coincide, also as 2·I = H."""
    number = st.integers(1, 7)
    layers = draw(st.integers(1, 4))
    unpadded = draw(st.integers(3, 9))
    return Sizes(
        hidden=draw(st.integers(2, 9)),
        layers=layers,
        heads=draw(st.sampled_from([2, 4])),
        kv_heads=1,
        swa_kv_heads=2,
        head_dim=draw(number),
        d_rel=draw(number),
        local=tuple(sorted(draw(st.sets(st.integers(0, layers - 1))))),
        num_dense=draw(st.integers(0, layers)),
        dense=draw(number),
        inner=draw(number),
        experts=draw(st.integers(2, 5)),
        shared=draw(st.integers(2, 3)),
        vocab=unpadded + draw(st.integers(0, 4)),
        unpadded=unpadded,
    )


def _parts(draw: st.DrawFn, model: Sizes) -> tuple[set[str], list[int]]:
    groups = draw(st.sets(st.sampled_from(GROUPS), min_size=1))
    every = list(range(model.layers))
    layers = draw(
        st.one_of(st.just(every), st.sets(st.sampled_from(every), min_size=1).map(sorted))
    )
    if layers == every and draw(st.booleans()):
        groups = set(GROUPS)
    return groups, layers


def _drop_some(draw: st.DrawFn, modules: list[Module]) -> list[Module]:
    """Return the modules, sometimes only a part: companions of gate, q or w1 may be missing."""
    if draw(st.booleans()):
        return modules
    keep = draw(st.lists(st.booleans(), min_size=len(modules), max_size=len(modules)))
    return [m for m, kept in zip(modules, keep, strict=True) if kept] or modules


@st.composite
def patterns(draw: st.DrawFn, modules: list[Module]) -> dict[str, Any]:
    """Return rank, alpha, rsLoRA and both patterns; keys are names, their ends and expressions."""
    names = sorted(
        {re.sub(r"\.\d+\.(?=\w+_proj$|w[123]$)", r".\\d+.", m.config_name) for m in modules}
    )
    tails = sorted({name.partition("layers.")[2].partition(".")[2] or name for name in names})
    keys = st.sampled_from([*names, *tails, r"layers\.[02]\..*", ".*down.*", r"\w+\.attn\..*"])
    ranks = draw(st.dictionaries(keys, st.sampled_from([1, 2, 3, 4]), max_size=2))
    alphas = draw(st.dictionaries(keys, st.sampled_from([1, 4, 6, 0.5, 12, 0]), max_size=2))
    return {
        "r": draw(st.sampled_from([1, 2, 3])),
        "lora_alpha": draw(st.sampled_from([1, 2, 8, 7, 0.75])),
        "use_rslora": draw(st.booleans()),
        "rank_pattern": ranks,
        "alpha_pattern": alphas,
    }


def _edits(draw: st.DrawFn) -> tuple[Edit, ...]:
    return tuple(
        draw(st.lists(st.sampled_from([forms.tie_gates, forms.repeat_outer]), unique=True))
    )


def _example(
    draw: st.DrawFn, dialect: str, model: Sizes, modules: list[Module], config: dict[str, Any]
) -> Example:
    extra = (forms.interleave_dense,) if dialect == "vllm" else ()
    return Example(
        dialect,
        model,
        tuple(modules),
        config,
        draw(st.sampled_from(["BF16", "F32", "F16"])),
        draw(st.integers(0, 999)),
        _edits(draw) + extra,
    )


@st.composite
def tinker_adapters(draw: st.DrawFn) -> Example:
    """Return an adapter of the released schema, also per expert, one by one and with a prefix."""
    model = draw(sizes())
    groups, layers = _parts(draw, model)
    form = draw(st.sampled_from(["shared", "shared", "per_expert", "numbered", "halves"]))
    head = draw(st.sampled_from(["padded", "unpadded"]))
    modules = released_modules(
        model, groups, layers, head_rows=head, per_expert=form == "per_expert"
    )
    modules = _drop_some(draw, modules or released_modules(model))
    names = draw(st.sampled_from(["proj", "w"]))
    if form == "numbered":
        modules = forms.numbered(modules, model, names=names)
    if form == "halves":
        modules = forms.halves(modules, model, names="w", ndim=draw(st.sampled_from([2, 3])))
    unembed = draw(st.sampled_from([None, None, "unembed_tokens", "model.unembed_tokens"]))
    modules = [replace(m, name=unembed) if unembed and _is_head(m) else m for m in modules]
    if draw(st.booleans()):
        modules = [replace(m, name=forms.PEFT_PREFIX + m.name) for m in modules]
    config = released_adapter_config(**_settings(draw, modules) | {"rank": 0, "alpha": 0})
    return _example(draw, "tinker", model, modules, config)


def _is_head(module: Module) -> bool:
    return module.name.endswith("lm_head")


def _settings(draw: st.DrawFn, modules: list[Module]) -> dict[str, Any]:
    """Return rank, alpha and patterns; none where a pattern could split experts from their half."""
    settings = draw(patterns(modules))
    if any(m.factors != "AB" for m in modules):
        return settings | {"rank_pattern": {}, "alpha_pattern": {}}
    return settings


@st.composite
def raw_adapters(draw: st.DrawFn) -> Example:
    """Return an adapter under the raw checkpoint's names, in part under the released ones."""
    model = draw(sizes())
    groups, layers = _parts(draw, model)
    options = {
        "routed": draw(st.sampled_from(["w13", "w13_weight", "w"])),
        "shared": draw(st.sampled_from(["shared_w13", "shared_w13_weight", "w"])),
        "per_expert": draw(st.booleans()),
        "root": draw(st.sampled_from(["model.llm.", "model.", "language_model."])),
        "head": draw(st.sampled_from(["model.llm.unembed", "unembed", "model.unembed_tokens"])),
        "head_rows": draw(st.sampled_from(["padded", "unpadded"])),
    }
    modules = forms.raw_modules(model, groups, layers, **options)
    modules = _drop_some(draw, modules or forms.raw_modules(model, **options))
    if options["routed"] == "w" and not options["per_expert"] and draw(st.booleans()):
        modules = forms.halves(modules, model, ndim=draw(st.sampled_from([2, 3])))
    if draw(st.booleans()):
        modules = [replace(m, name=forms.PEFT_PREFIX + m.name) for m in modules]
    config = released_adapter_config(**_settings(draw, modules) | {"rank": 0, "alpha": 0})
    return _example(draw, "raw", model, modules, config)


@st.composite
def vllm_adapters(draw: st.DrawFn) -> Example:
    """Return an adapter that vLLM applies: layers with experts have all three of w1, w2, w3."""
    model = draw(sizes())
    groups, layers = _parts(draw, model)
    root = draw(st.sampled_from(["language_model.", "model.llm.", "model."]))
    one_by_one = draw(st.booleans())
    modules = forms.vllm_modules(model, groups, layers, one_by_one=one_by_one, root=root)
    modules = modules or forms.vllm_modules(model, one_by_one=one_by_one, root=root)
    if draw(st.booleans()):
        modules = [replace(m, name=forms.raw_dense_name(m.name)) for m in modules]
    config = forms.vllm_config(modules, 0, 0) | draw(patterns(modules))
    return _example(draw, "vllm", model, modules, config)


@st.composite
def sglang_adapters(draw: st.DrawFn) -> Example:
    """Return an adapter under SGLang's names: one rank, one scaling, one kind of outer factor."""
    model = draw(sizes())
    groups, layers = _parts(draw, model)
    routed = draw(st.sampled_from(["w", "proj", "fused", "numbered", "numbered w", "halves"]))
    one_by_one = routed.startswith("numbered")
    per_expert = one_by_one or (routed != "halves" and draw(st.booleans()))
    options = {
        "attention": draw(st.sampled_from(["split", "qkvr", "qkvr4"])),
        "dense": draw(st.sampled_from(["fused", "proj", "w"])),
        "routed": routed,
        "shared": "stack" if per_expert else draw(st.sampled_from(["flat", "stack"])),
        "per_expert": per_expert,
        "root": draw(st.sampled_from(["language_model.", "model.", "model.language_model."])),
        "head": draw(st.sampled_from(["lm_head", "model.unembed_tokens", "model.lm_head"])),
    }
    modules = forms.sglang_modules(model, groups, layers, **options)
    modules = modules or forms.sglang_modules(model, **options)
    rank, alpha = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 8, 7, 0.75]))
    return _example(draw, "sglang", model, modules, forms.sglang_config(rank, alpha))


@st.composite
def peft_adapters(draw: st.DrawFn, dialect: str = "peft") -> Example:
    """Return an adapter as PEFT saves it, any subset of the parameters targeted."""
    model = draw(sizes())
    groups, layers = _parts(draw, model)
    root = draw(st.sampled_from(["model.language_model.", "model."]))
    parameters = {
        holder: draw(st.sets(st.sampled_from(names), min_size=1))
        for holder, names in forms.PARAMETERS.items()
    }
    modules = forms.peft_modules(model, groups, layers, root=root, parameters=parameters)
    modules = modules or forms.peft_modules(model, root=root)
    config = forms.peft_config(modules, 0, 0) | draw(patterns(modules))
    if dialect == "peft-0.18":
        modules = forms.swap_packed(modules)
    return _example(draw, dialect, model, modules, config)


ADAPTERS = {
    "tinker": tinker_adapters(),
    "vllm": vllm_adapters(),
    "sglang": sglang_adapters(),
    "peft": peft_adapters(),
    "raw": raw_adapters(),
    "peft-0.18": peft_adapters("peft-0.18"),
    "peft-unsloth": peft_adapters("peft-unsloth"),
}
"""A strategy for each dialect."""
