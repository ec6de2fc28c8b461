"""What each consumer adds to the base weights: an independent calculator in float64.

Written from the published behaviour of the consumers alone; it shares no table, no layout and no
matching rule with the code under test. A `Factors` is one site: ΔW = scaling · B @ A, experts in
front. A consumer that would refuse an adapter, or read it differently than it says, raises
`RefusedError` or simply gives other deltas.
"""

import json
import re
from pathlib import Path

import numpy as np
from lora_factors import (
    Array,
    Config,
    Factors,
    RefusedError,
    Tensors,
    flat,
    matrix,
    modules_of,
    stack,
)
from safetensors.torch import load_file
from sglang_deltas import read_sglang

from factories import Sizes


def read_deltas(folder: Path, dialect: str, sizes: Sizes) -> dict[str, Factors]:
    """Return what the consumer of a dialect computes from an adapter folder, by site.

    Sites are named as the released adapters name them, gate and up apart: `layers.0.mlp.gate`,
    `layers.1.mlp.experts.w1`, `lm_head` (always with the padded vocabulary).
    """
    tensors = {
        name.removesuffix(".weight"): tensor.double().numpy()
        for name, tensor in load_file(folder / "adapter_model.safetensors").items()
        if not name.endswith(".base_layer.weight")
    }
    config = Config(json.loads((folder / "adapter_config.json").read_text()))
    found = {"tinker": _tinker, "vllm": _vllm, "sglang": read_sglang, "peft": _peft}[dialect](
        tensors, config, sizes
    )
    if "lm_head" in found:
        head = found["lm_head"]
        missing = sizes.vocab - head.b.shape[1]
        padded = np.pad(head.b, ((0, 0), (0, missing), (0, 0)))
        found["lm_head"] = Factors(head.a, padded, head.scaling)
    return found


_W = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}


class _Numbered:
    """Per-expert pairs on their way to one stack."""

    def __init__(self) -> None:
        self.found: dict[str, dict[int, tuple[Array, Array, float]]] = {}

    def add(self, site: str, expert: int, a: Array, b: Array, scaling: float) -> None:
        self.found.setdefault(site, {})[expert] = (a, b, scaling)

    def stacks(self, experts: int) -> dict[str, Factors]:
        result = {}
        for site, parts in self.found.items():
            if sorted(parts) != list(range(experts)):
                raise RefusedError(f"{site} has the experts {sorted(parts)}")
            ordered = [parts[e] for e in range(experts)]
            (scaling,) = {part[2] for part in ordered}
            a, b = (np.stack([part[i] for part in ordered]) for i in (0, 1))
            result[site] = Factors(a, b, scaling)
        return result


def _tinker(tensors: Tensors, config: Config, sizes: Sizes) -> dict[str, Factors]:
    """The released schema's own meaning, with rank and alpha patterns as PEFT has them."""
    found, numbered = {}, _Numbered()
    for module, (a, b) in modules_of(tensors).items():
        s = config.scaling(module)
        name = module.removeprefix("base_model.model.").removeprefix("language_model.")
        layer, _, tail = name.partition(".mlp.")
        if match := re.fullmatch(r"experts\.(\d+)\.(\w+)", tail):
            numbered.add(f"{layer}.mlp.experts.{_W[match[2]]}", int(match[1]), a, b, s)
        elif tail == "gate_up_proj":
            gate, up = np.split(b, 2)
            found[f"{layer}.mlp.gate"], found[f"{layer}.mlp.up"] = (
                matrix(a, half, s) for half in (gate, up)
            )
        elif tail == "down_proj":
            found[f"{layer}.mlp.down"] = matrix(a, b, s)
        elif tail.startswith("experts."):
            found[name] = stack(a, b, sizes.experts, s)
        elif tail.startswith("shared_experts."):
            found[name] = flat(a, b, tail.endswith("w2"), sizes.shared, s)
        else:
            found[name] = matrix(a, b, s)
    return found | numbered.stacks(sizes.experts)


_VLLM_KNOWN = {"wq_du", "wk_dv", "wv_dv", "wr_du", "wo_ud", "gate_up_proj", "down_proj", "lm_head"}


def _vllm(tensors: Tensors, config: Config, sizes: Sizes) -> dict[str, Factors]:
    """vLLM 0.33 with shared-outer LoRA where experts are 3-D, without it where they are not."""
    found, numbered = {}, _Numbered()
    for module, (a, b) in modules_of(tensors).items():
        s = config.scaling(module)
        name = re.sub(r"^(language_model|model\.llm|model)\.layers\.", "layers.", module)
        name = {"language_model.lm_head": "lm_head", "model.llm.unembed": "lm_head"}.get(name, name)
        layer, _, tail = name.partition(".mlp.")
        if match := re.fullmatch(r"experts\.(\d+)\.(gate_proj|up_proj|down_proj)", tail):
            numbered.add(f"{layer}.mlp.experts.{_W[match[2]]}", int(match[1]), a, b, s)
        elif tail == "gate_up_proj":
            found[f"{layer}.mlp.gate"] = matrix(a, b[0::2], s)
            found[f"{layer}.mlp.up"] = matrix(a, b[1::2], s)
        elif tail == "down_proj":
            found[f"{layer}.mlp.down"] = matrix(a, b, s)
        elif re.fullmatch(r"experts\.w[123]", tail):
            found[name] = _vllm_shared_outer(a, b, tail.endswith("w2"), sizes.experts, s)
        elif match := re.fullmatch(r"sink_experts\.(w[123])", tail):
            site = f"{layer}.mlp.shared_experts.{match[1]}"
            found[site] = flat(a, b, match[1] == "w2", sizes.shared, s)
        elif tail.startswith("shared_experts."):
            continue  # accepted and dropped
        elif name.rpartition(".")[2] in _VLLM_KNOWN:
            found[name] = matrix(a, b, s)
        else:
            raise RefusedError(f"vLLM does not know {module}")
    stacks = numbered.stacks(sizes.experts)
    if stacks and any(".mlp.experts." in site for site in found):
        raise RefusedError("3-D and numbered experts in one adapter")
    _require_all_three(found | stacks, "experts")
    return found | stacks


def _vllm_shared_outer(a: Array, b: Array, down: bool, experts: int, s: float) -> Factors:
    """Return the shared-outer reading: whatever lies behind expert 0 of the outer factor is cut."""
    if down:
        b = b[:1]
    else:
        a = a[:1]
    if (a if down else b).shape[0] != experts:
        raise RefusedError("the inner factor does not hold every expert")
    return stack(a, b, experts, s)


def _require_all_three(found: dict[str, Factors], holder: str) -> None:
    layers = {site.partition(".mlp.")[0] for site in found if f".mlp.{holder}." in site}
    for layer in layers:
        if not all(f"{layer}.mlp.{holder}.{w}" in found for w in ("w1", "w2", "w3")):
            raise RefusedError(f"{layer} has not all three of w1, w2 and w3")


def _peft(tensors: Tensors, config: Config, sizes: Sizes) -> dict[str, Factors]:
    """PEFT on transformers: wrappers nest in the order in which parameters are registered."""
    names = {
        "self_attn.q_proj": "attn.wq_du",
        "self_attn.k_proj": "attn.wk_dv",
        "self_attn.v_proj": "attn.wv_dv",
        "self_attn.r_proj": "attn.wr_du",
        "self_attn.o_proj": "attn.wo_ud",
        "mlp.gate_proj": "mlp.gate",
        "mlp.up_proj": "mlp.up",
        "mlp.down_proj": "mlp.down",
    }
    found = {}
    for module, (a, b) in modules_of(tensors).items():
        path = module.removeprefix("base_model.model.")
        if ".mlp.experts" in path or ".mlp.shared_experts" in path:
            found |= _peft_parameter(path, a, b, config, sizes)
        elif path == "lm_head":
            if b.shape[0] != sizes.vocab:
                raise RefusedError("lm_head has the padded vocabulary in transformers")
            found["lm_head"] = matrix(a, b, config.scaling(path))
        else:
            match = re.fullmatch(r"model\.(?:language_model\.)?(layers\.\d+)\.(.+)", path)
            assert match is not None
            found[f"{match[1]}.{names[match[2]]}"] = matrix(a, b, config.scaling(path))
    return found


def _peft_parameter(
    path: str, a: Array, b: Array, config: Config, sizes: Sizes
) -> dict[str, Factors]:
    holder = re.sub(r"(\.base_layer)+$", "", path)
    depth = path.count(".base_layer")
    is_routed = holder.endswith(".experts")
    registered = (
        ("gate_up_proj", "down_proj") if is_routed else ("gate_proj", "up_proj", "down_proj")
    )
    targets = config.values.get("target_parameters") or ()
    targeted = [
        name
        for name in registered
        if any(f"{holder}.{name}" == t or f"{holder}.{name}".endswith(f".{t}") for t in targets)
    ]
    parameter = targeted[len(targeted) - 1 - depth]
    experts = sizes.experts if is_routed else sizes.shared
    full = f"{holder}.{parameter}"
    rank, s = config.rank(full), config.scaling(full)
    if a.shape[0] != experts * rank or b.shape[1] != experts * rank:
        raise RefusedError(f"{full} needs {experts} times rank {rank}, A is {a.shape}")
    stacked_a = a.reshape(experts, rank, -1)
    stacked_b = np.moveaxis(b.reshape(-1, rank, experts), 2, 0)
    match = re.search(r"(layers\.\d+\.mlp)\.", path)
    assert match is not None
    root = f"{match[1]}.{'experts' if is_routed else 'shared_experts'}"
    if parameter == "gate_up_proj":
        gate, up = np.split(stacked_b, 2, axis=1)
        return {
            f"{root}.w1": Factors(stacked_a, gate, s),
            f"{root}.w3": Factors(stacked_a, up, s),
        }
    return {f"{root}.{_W[parameter]}": Factors(stacked_a, stacked_b, s)}


def assert_same_deltas(
    found: dict[str, Factors], expected: dict[str, Factors], relative: float = 0.0
) -> None:
    """Assert equal deltas; a site that only one side has must have a delta of zero.

    Args:
        found: what the converted adapter does.
        expected: what the original does.
        relative: rounding allowed in every element of B (the dtype's, where scaling was folded).
            Two roundings of the scaling itself in float64 are always allowed.
    """
    for site in sorted(set(found) | set(expected)):
        if site not in found or site not in expected:
            only = found.get(site) or expected[site]
            assert not only.delta().any(), f"{site} is on one side only"
            continue
        left, right = found[site].delta(), expected[site].delta()
        assert left.shape == right.shape, f"{site}: {left.shape} is not {right.shape}"
        allowed = 1e-14 * abs(right) + relative * expected[site].magnitude()
        bad = ~(abs(left - right) <= allowed)
        assert not bad.any(), f"{site}: {int(bad.sum())} of {bad.size} elements differ"
