"""adapter_config.json for the written modules: rank, alpha, patterns and targets.

The written object is the source's with what decides the effect replaced. Patterns are written so
that no two keys fit the same module, because PEFT lets the first key in file order win.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from inkling_runtime.adapter.dialects.dialect import Dialect
from inkling_runtime.adapter.layouts import Layout
from inkling_runtime.adapter.lora_config import LoraConfig, scaling
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.sites import Group, SiteKind
from inkling_runtime.errors import InklingError


@dataclass(frozen=True, slots=True)
class ConfigModule:
    """What the config must say of one written module.

    `name` is the name that patterns and targets match (no `base_model.model.`); `tail` is its
    part behind the layer, the same for all layers (and experts, as a regular expression).
    """

    name: str
    tail: str
    layer: int
    kinds: tuple[SiteKind, ...]
    layout: Layout
    rank: int
    scaling: float


DROPPED_KEY = "inkling_dropped_groups"
"""Key that tells the groups which were left out. Engines pass over it. PEFT warns of any key that
it does not know, so that it is told in its own word, `exclude_modules`."""

_SELECTORS = ("target_parameters", "exclude_modules", "layers_to_transform", "layers_pattern")
"""Keys that choose modules; the written targets replace them."""


def fit_config(
    source: LoraConfig,
    dialect: Dialect,
    modules: list[ConfigModule],
    spec: ModelSpec | None,
    *,
    is_folded: bool = False,
    dropped: Collection[Group] = (),
) -> dict[str, Any]:
    """Return the config object that gives every module its rank and scaling.

    Where the scalings are folded into the factors, alpha is the rank, without rsLoRA. It tells
    which groups were dropped, now or before.
    """
    rslora = source.use_rslora and dialect.honours_patterns and not is_folded
    rank, base_scaling = _most_common(source, modules)
    alpha = _alpha(source, rank, base_scaling, rslora)
    values = dict(source.values)
    for key in (*_SELECTORS, DROPPED_KEY):
        values.pop(key, None)
    values |= {"peft_type": "LORA", "r": rank, "lora_alpha": alpha}
    if rslora or "use_rslora" in values:
        values["use_rslora"] = rslora
    ranks = _pattern(modules, lambda m: m.rank, rank)
    alphas = _pattern(
        modules,
        lambda m: _alpha(source, m.rank, m.scaling, rslora),
        alpha,
    )
    for key, pattern in (("rank_pattern", ranks), ("alpha_pattern", alphas)):
        if pattern or key in values:
            values[key] = pattern
    values |= _TARGETS[dialect.name](source, modules, spec)
    return values | _told(dialect, _dropped_by_now(source, modules, dropped))


def _dropped_by_now(
    source: LoraConfig, modules: Iterable[ConfigModule], dropped: Collection[Group]
) -> list[Group]:
    """Return the groups that were left out, less those that a merge has brought back."""
    before = source.values.get(DROPPED_KEY)
    told = {group for group in Group if isinstance(before, list) and group.value in before}
    held = {kind.group for module in modules for kind in module.kinds}
    return sorted((told | set(dropped)) - held)


def _told(dialect: Dialect, dropped: Collection[Group]) -> dict[str, Any]:
    """Return what tells the dropped groups; for PEFT the modules, or what holds parameters."""
    if not dropped:
        return {}
    if dialect.name != "peft":
        return {DROPPED_KEY: [group.value for group in dropped]}
    rows = [row for row in dialect.written_rows() if row.kinds[0].group in dropped]
    tails = [(row.template.removeprefix("layers.{layer}."), row.layout.is_packed) for row in rows]
    return {
        "exclude_modules": sorted({t.rpartition(".")[0] if packed else t for t, packed in tails})
    }


def _most_common(source: LoraConfig, modules: list[ConfigModule]) -> tuple[int, float]:
    """Return the rank and scaling that most modules have, the source's rank before others."""
    with_source_rank = [m for m in modules if m.rank == source.rank]
    counts = Counter((m.rank, m.scaling) for m in with_source_rank or modules)
    return counts.most_common(1)[0][0]


def _alpha(source: LoraConfig, rank: int, wanted: float, rslora: bool) -> int | float:
    """Return the alpha that gives a scaling at a rank, the source's own number if it does."""
    if scaling(source.alpha, rank, rslora) == wanted:
        alpha = source.alpha
    else:
        alpha = wanted * (math.sqrt(rank) if rslora else rank)
        if not math.isfinite(alpha):
            raise InklingError(f"scaling {wanted} at rank {rank} needs an alpha beyond every float")
        if math.isclose(alpha, round(alpha), rel_tol=1e-12):
            alpha = round(alpha)
    return int(alpha) if float(alpha).is_integer() else alpha


def _by_tail(modules: Iterable[ConfigModule]) -> dict[str, list[ConfigModule]]:
    groups: dict[str, list[ConfigModule]] = {}
    for module in modules:
        groups.setdefault(module.tail, []).append(module)
    return groups


def _pattern(
    modules: list[ConfigModule], value_of: Callable[[ConfigModule], float], default: float
) -> dict[str, Any]:
    """Return a pattern for the modules that differ from the default: one key a kind if it can."""
    pattern: dict[str, Any] = {}
    for tail, group in _by_tail(modules).items():
        values = {value_of(module) for module in group}
        if values == {default}:
            continue
        if len(values) == 1:
            pattern[tail] = values.pop()
        else:
            pattern |= {m.name: value_of(m) for m in group if value_of(m) != default}
    return dict(sorted(pattern.items()))


def _tinker_targets(
    source: LoraConfig, modules: list[ConfigModule], spec: ModelSpec | None
) -> dict[str, Any]:
    return {"target_modules": "all-linear"}


def _vllm_targets(
    source: LoraConfig, modules: list[ConfigModule], spec: ModelSpec | None
) -> dict[str, Any]:
    return {"target_modules": sorted({m.tail.rpartition(".")[2] for m in modules})}


_SGLANG_TARGETS: dict[SiteKind, str] = {
    SiteKind.Q: "qkvr",
    SiteKind.K: "qkvr",
    SiteKind.V: "qkvr",
    SiteKind.R: "qkvr",
    SiteKind.O: "wo_ud",
    SiteKind.HEAD: "lm_head",
}


def _sglang_targets(
    source: LoraConfig, modules: list[ConfigModule], spec: ModelSpec | None
) -> dict[str, Any]:
    """SGLang wraps experts only where both gate_up_proj and down_proj are targets."""
    targets: set[str] = set()
    for kind in (kind for module in modules for kind in module.kinds):
        targets |= {_SGLANG_TARGETS[kind]} if kind in _SGLANG_TARGETS else _MLP_TARGETS
    return {"target_modules": sorted(targets)}


_MLP_TARGETS = {"gate_up_proj", "down_proj"}


def _peft_targets(
    source: LoraConfig, modules: list[ConfigModule], spec: ModelSpec | None
) -> dict[str, Any]:
    """Modules and parameters apart; full names unless a kind is adapted in every layer.

    A short name would make PEFT add an adapter, without weights, to layers that have none.
    """
    packed = [m for m in modules if m.layout.is_packed]
    plain = [m for m in modules if not m.layout.is_packed]
    return {
        "target_modules": _peft_names(plain, spec) or None,
        "target_parameters": _peft_names(packed, spec) or None,
        "bias": "none",
        "lora_dropout": 0.0,
        "inference_mode": True,
        "init_lora_weights": True,
    }


def _peft_names(modules: Iterable[ConfigModule], spec: ModelSpec | None) -> list[str]:
    sites = set(spec.sites()) if spec is not None else set()
    names: list[str] = []
    for tail, group in _by_tail(modules).items():
        kind = group[0].kinds[0]
        everywhere = {site.layer for site in sites if site.kind is kind}
        covered = everywhere == {module.layer for module in group}
        names += [tail] if covered or group[0].layer < 0 else [m.name for m in group]
    return sorted(names)


_TARGETS: dict[
    str, Callable[[LoraConfig, list[ConfigModule], ModelSpec | None], dict[str, Any]]
] = {
    "tinker": _tinker_targets,
    "vllm": _vllm_targets,
    "sglang": _sglang_targets,
    "peft": _peft_targets,
}
