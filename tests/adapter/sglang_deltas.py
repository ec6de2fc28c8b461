"""What SGLang 0.5.23 computes from an adapter: names by substring, one scale, one rank.

Shared-outer mode is one switch for the whole server, found from the adapter: on if a gate_up A is
three-dimensional with a leading 1. In the other mode a factor with a leading 1 fills expert 0
only.
"""

import re

import numpy as np
from deltas import Array, Config, Factors, RefusedError, Tensors

from factories import Sizes

_POOL = {"qkvr", "wo_ud", "gate_up_proj", "down_proj", "embed_tokens", "lm_head"}
_ALIASES = {"gate_proj": "gate_up_proj", "up_proj": "gate_up_proj", "unembed_tokens": "lm_head"}

Layer = dict[str, Array]
"""Name behind `layers.N.` with its `.lora_A` or `.lora_B` → values."""


def read_sglang(tensors: Tensors, config: Config, sizes: Sizes) -> dict[str, Factors]:
    """Return what SGLang computes, by site."""
    targets = _targets(config)
    layers: dict[str, Layer] = {}
    head: dict[str, Array] = {}
    for name, tensor in tensors.items():
        name = name.replace("unembed_tokens", "lm_head")
        if match := re.search(r"(layers\.\d+)\.(.+)", name):
            layers.setdefault(match[1], {})[match[2]] = tensor
        elif "lm_head" in name and "lm_head" in targets:
            head[name.rpartition(".")[2]] = tensor
    normal = {layer: _normalise(parts, sizes) for layer, parts in layers.items()}
    is_shared_outer = _detect_shared_outer(normal)
    found: dict[str, Factors] = {}
    for layer, parts in normal.items():
        _require_targets(parts, targets)
        found |= _read_layer(layer, parts, config, sizes, is_shared_outer)
    if head:
        found["lm_head"] = _head(head, config, sizes)
    return found


def _targets(config: Config) -> set[str]:
    value = config.values["target_modules"]
    if isinstance(value, str):
        if value not in ("all", "all-linear"):
            raise RefusedError(f"target_modules {value}")
        return _POOL
    last = {name.rpartition(".")[2] for name in value}
    targets = {_ALIASES.get(name, name) for name in last}
    if not targets <= _POOL:
        raise RefusedError(f"target_modules {sorted(targets - _POOL)}")
    return targets


def _require_targets(parts: Layer, targets: set[str]) -> None:
    for name in parts:
        if not any(target in name for target in targets):
            raise RefusedError(f"no target for {name}")
        if ".experts." in f".{name}" and not {"gate_up_proj", "down_proj"} <= targets:
            raise RefusedError("experts are wrapped only with gate_up_proj and down_proj")


def _normalise(parts: Layer, sizes: Sizes) -> Layer:
    """Return a layer's tensors under the pool's names: qkvr, gate_up_proj, down_proj, wo_ud."""
    parts = dict(parts)
    for letter in ("lora_A", "lora_B"):
        names = [f"attn.{w}.{letter}" for w in ("wq_du", "wk_dv", "wv_dv", "wr_du")]
        if all(name in parts for name in names):
            parts[f"attn.qkvr.{letter}"] = np.concatenate([parts.pop(n) for n in names], -2)
        elif any(name in parts for name in names):
            raise RefusedError("q, k, v and r are not all there")
        elif letter == "lora_A" and "attn.qkvr.lora_A" in parts:
            a, b = parts["attn.qkvr.lora_A"], parts["attn.qkvr.lora_B"]
            if a.shape[0] == b.shape[1]:
                parts["attn.qkvr.lora_A"] = np.tile(a, (4, 1))
    result: Layer = {}
    for name, tensor in parts.items():
        for old, new in ((".w1.", ".gate_proj."), (".w3.", ".up_proj."), (".w2.", ".down_proj.")):
            name = name.replace(old, new)
        if re.match(r"mlp\.shared_experts\.[a-z]", name) and tensor.ndim == 2:
            tensor = _sink_to_stack(name, tensor, sizes.shared)
        result[name] = tensor
    return _merge_gate_up(result)


def _sink_to_stack(name: str, tensor: Array, shared: int) -> Array:
    if ".down_proj.lora_A" in name:
        return tensor.reshape(tensor.shape[0], shared, -1).transpose(1, 0, 2)
    if name.endswith("lora_B") and ".down_proj." not in name:
        return tensor.reshape(shared, -1, tensor.shape[1])
    return tensor[None]


def _merge_gate_up(parts: Layer) -> Layer:
    result: Layer = {}
    for name, tensor in parts.items():
        if ".gate_proj." in name:
            up = parts.get(name.replace(".gate_proj.", ".up_proj."))
            up = np.zeros_like(tensor) if up is None else up
            if tensor.shape != up.shape:
                raise RefusedError(f"{name} and its up have other shapes")
            merged = np.concatenate([tensor, up], -2)
            result[name.replace(".gate_proj.", ".gate_up_proj.")] = merged
        elif ".up_proj." in name:
            if name.replace(".up_proj.", ".gate_proj.") not in parts:
                raise RefusedError(f"{name} without its gate")
        elif ".gate_up_proj.lora_A" in name:
            result[name] = np.concatenate([tensor, tensor], -2)
        else:
            result[name] = tensor
    return result


def _detect_shared_outer(layers: dict[str, Layer]) -> bool:
    evidence = set()
    for parts in layers.values():
        for name, tensor in parts.items():
            if not name.endswith("gate_up_proj.lora_A") or "experts" not in name:
                continue
            numbered = re.search(r"experts\.\d+\.", name) is not None
            evidence.add(not numbered and tensor.shape[0] == 1)
    if len(evidence) > 1:
        raise RefusedError("mixed shared-outer LoRA formats")
    return evidence == {True}


def _read_layer(
    layer: str, parts: Layer, config: Config, sizes: Sizes, is_shared_outer: bool
) -> dict[str, Factors]:
    rank, s = config.values["r"], config.values["lora_alpha"] / config.values["r"]
    found: dict[str, Factors] = {}
    if pair := _take(parts, "attn.qkvr", 4, rank):
        found |= _qkvr(layer, *pair, sizes, rank, s)
    for name, site in (("attn.wo_ud", "attn.wo_ud"), ("mlp.down_proj", "mlp.down")):
        if pair := _take(parts, name, 1, rank):
            found[f"{layer}.{site}"] = Factors(pair[0][None], pair[1][None], s)
    if pair := _take(parts, "mlp.gate_up_proj", 2, rank):
        gate, up = (f"{layer}.mlp.gate", f"{layer}.mlp.up")
        found |= _gate_up(pair[0][None], pair[1][None], rank, s, gate, up)
    for holder, experts in (("experts", sizes.experts), ("shared_experts", sizes.shared)):
        root = f"{layer}.mlp.{holder}"
        gate_up = _stacked(parts, f"mlp.{holder}", "gate_up_proj", experts, is_shared_outer)
        if gate_up is not None:
            _require_rank(gate_up, 2, rank)
            found |= _gate_up(*gate_up, rank, s, f"{root}.w1", f"{root}.w3")
        down = _stacked(parts, f"mlp.{holder}", "down_proj", experts, is_shared_outer)
        if down is not None:
            _require_rank(down, 1, rank)
            found[f"{root}.w2"] = Factors(*down, s)
    return found


def _require_rank(pair: tuple[Array, Array], copies: int, rank: int) -> None:
    a, b = pair
    if a.shape[-2] != copies * rank or b.shape[-1] != rank:
        raise RefusedError(f"A is {a.shape}, B {b.shape} at rank {rank}")


def _take(parts: Layer, name: str, copies: int, rank: int) -> tuple[Array, Array] | None:
    a, b = (parts.get(f"{name}.lora_{letter}") for letter in "AB")
    if a is None or b is None:
        return None
    _require_rank((a, b), copies, rank)
    return a, b


def _stacked(
    parts: Layer, holder: str, name: str, experts: int, is_shared_outer: bool
) -> tuple[Array, Array] | None:
    """Return A and B per expert as the buffers hold them."""
    pair = []
    for letter in "AB":
        tensor = parts.get(f"{holder}.{name}.lora_{letter}")
        if tensor is None:
            ones = [parts.get(f"{holder}.{e}.{name}.lora_{letter}") for e in range(experts)]
            if all(one is None for one in ones):
                return None
            if any(one is None for one in ones):
                raise RefusedError(f"{holder}.{name} lacks experts")
            tensor = np.stack([one for one in ones if one is not None])
        is_outer = (letter == "B") == (name == "down_proj")
        if is_outer and is_shared_outer:
            if tensor.shape[0] != 1:
                raise RefusedError(f"{holder}.{name} is per expert under the shared-outer setting")
            tensor = np.repeat(tensor, experts, 0)
        filled = np.zeros((experts, *tensor.shape[1:]))
        filled[: tensor.shape[0]] = tensor
        pair.append(filled)
    return pair[0], pair[1]


def _gate_up(a: Array, b: Array, rank: int, s: float, gate: str, up: str) -> dict[str, Factors]:
    half = b.shape[1] // 2
    return {
        gate: Factors(a[:, :rank], b[:, :half], s),
        up: Factors(a[:, rank:], b[:, half:], s),
    }


def _qkvr(layer: str, a: Array, b: Array, sizes: Sizes, rank: int, s: float) -> dict[str, Factors]:
    key = sizes.key(int(layer.split(".")[1]))
    found, row = {}, 0
    widths = (("wq_du", sizes.query), ("wk_dv", key), ("wv_dv", key), ("wr_du", sizes.rel))
    for i, (name, rows) in enumerate(widths):
        part = a[None, i * rank : (i + 1) * rank]
        found[f"{layer}.attn.{name}"] = Factors(part, b[None, row : row + rows], s)
        row += rows
    if row != b.shape[0]:
        raise RefusedError(f"qkvr has {b.shape[0]} rows")
    return found


def _head(head: dict[str, Array], config: Config, sizes: Sizes) -> Factors:
    if head["lora_B"].shape[0] > sizes.unpadded:
        raise RefusedError("lm_head has padded rows")
    if head["lora_A"].shape[0] != config.values["r"]:
        raise RefusedError("lm_head has another rank")
    scaling = config.values["lora_alpha"] / config.values["r"]
    return Factors(head["lora_A"][None], head["lora_B"][None], scaling)
