"""Adapters for the tiny models: random factors by site, and the factors of a PEFT model."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inkling_runtime.adapter.factors import SiteFactors
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.sites import HEAD_SITE, Site, SiteKind


def random_factors(
    spec: ModelSpec,
    seed: int,
    rank: int = 3,
    *,
    shared_outer: bool = True,
    kinds: Iterable[SiteKind] = tuple(SiteKind),
    scaling: float = 0.9,
) -> dict[Site, SiteFactors]:
    """Return factors for every site of these kinds, fp32, with effects of the logits' size."""
    rng, factors = np.random.default_rng(seed), {}
    for site, shape in spec.sites().items():
        if site.kind not in set(kinds):
            continue
        a_experts = b_experts = (shape.experts,) if shape.experts else ()
        if shape.experts and shared_outer:
            a_experts, b_experts = (a_experts, (1,)) if site.kind.is_down else ((1,), b_experts)
        a = rng.normal(size=(*a_experts, rank, shape.in_features)) * shape.in_features**-0.5
        b = rng.normal(size=(*b_experts, shape.out_features, rank)) * rank**-0.5
        factors[site] = SiteFactors(_float32(a), _float32(b), "F32", scaling)
    return factors


def expand_shared(factors: Mapping[Site, SiteFactors], spec: ModelSpec) -> dict[Site, SiteFactors]:
    """Return the same adapter with every shared factor repeated for all experts."""
    shapes = spec.sites()
    return {
        site: replace(pair, a=_repeat(pair.a, experts), b=_repeat(pair.b, experts))
        if (experts := shapes[site].experts)
        else pair
        for site, pair in factors.items()
    }


def _repeat(array: NDArray[Any], experts: int) -> NDArray[Any]:
    return np.repeat(array, experts, axis=0) if len(array) == 1 else array


def _float32(array: NDArray[Any]) -> NDArray[np.float32]:
    return array.astype(np.float32)


_LINEAR = {
    "q_proj": SiteKind.Q,
    "k_proj": SiteKind.K,
    "v_proj": SiteKind.V,
    "r_proj": SiteKind.R,
    "o_proj": SiteKind.O,
    "gate_proj": SiteKind.DENSE_GATE,
    "up_proj": SiteKind.DENSE_UP,
    "down_proj": SiteKind.DENSE_DOWN,
}
_STACKED = {
    "experts.down_proj": (SiteKind.ROUTED_DOWN,),
    "experts.gate_up_proj": (SiteKind.ROUTED_GATE, SiteKind.ROUTED_UP),
    "shared_experts.gate_proj": (SiteKind.SHARED_GATE,),
    "shared_experts.up_proj": (SiteKind.SHARED_UP,),
    "shared_experts.down_proj": (SiteKind.SHARED_DOWN,),
}


def peft_factors(model: Any) -> dict[Site, SiteFactors]:
    """Return the factors of a PEFT model's default adapter, by the oracle's own tensors.

    Stacks of E experts are split as PEFT packs them: A is [E·R, in] with the expert slowest, B is
    [out, R·E] with the expert fastest.
    """
    factors: dict[Site, SiteFactors] = {}
    for name, module in model.named_modules():
        if "default" not in getattr(module, "lora_A", {}):
            continue
        a = module.lora_A["default"].weight.detach().numpy()
        b = module.lora_B["default"].weight.detach().numpy()
        scaling = module.scaling["default"]
        parameter = getattr(module, "parameter_name", "weight")
        if name.endswith("lm_head"):
            factors[HEAD_SITE] = SiteFactors(a, b, "F32", scaling)
            continue
        match = re.search(r"layers\.(\d+)\.", name)
        assert match is not None
        layer, leaf = int(match[1]), name.replace(".base_layer", "").split(".")[-1]
        if parameter == "weight":
            factors[Site(layer, _LINEAR[leaf])] = SiteFactors(a, b, "F32", scaling)
            continue
        experts = getattr(module.get_base_layer(), parameter).shape[0]
        a3 = a.reshape(experts, -1, a.shape[1])
        b3 = b.reshape(b.shape[0], -1, experts).transpose(2, 0, 1)
        kinds = _STACKED[f"{leaf}.{parameter}"]
        for kind, part in zip(kinds, np.split(b3, len(kinds), axis=1), strict=True):
            factors[Site(layer, kind)] = SiteFactors(a3, part, "F32", scaling)
    return factors
