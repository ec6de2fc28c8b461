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
from peft_deltas import read_peft
from raw_deltas import expand_halves, plain_name, split_raw
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
    if dialect.startswith("peft"):
        found = read_peft(tensors, config, sizes, dialect)
    else:
        readers = {"tinker": _tinker, "vllm": _vllm, "sglang": read_sglang, "raw": _raw}
        found = readers[dialect](tensors, config, sizes)
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
    for module, (a, b) in modules_of(expand_halves(tensors)).items():
        s = config.scaling(module)
        name = plain_name(module)
        name = "lm_head" if name in ("unembed", "unembed_tokens") else name
        layer, _, tail = name.partition(".mlp.")
        if match := re.fullmatch(r"experts\.(\d+)\.(\w+)", tail):
            projection = _W.get(match[2], match[2])
            numbered.add(f"{layer}.mlp.experts.{projection}", int(match[1]), a, b, s)
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


def _raw(tensors: Tensors, config: Config, sizes: Sizes) -> dict[str, Factors]:
    """The raw checkpoint's names, and the released meaning of all others beside them."""
    found, rest = split_raw(tensors, config, sizes)
    return found | _tinker(rest, config, sizes)


_VLLM_KNOWN = {"wq_du", "wk_dv", "wv_dv", "wr_du", "wo_ud", "gate_up_proj", "down_proj", "lm_head"}


def _vllm(tensors: Tensors, config: Config, sizes: Sizes) -> dict[str, Factors]:
    """vLLM 0.33 with shared-outer LoRA where experts are 3-D, without it where they are not."""
    found, numbered = {}, _Numbered()
    for module, (a, b) in modules_of(tensors).items():
        s = config.scaling(module)
        name = re.sub(r"^(language_model|model\.llm|model)\.layers\.", "layers.", module)
        name = {"language_model.lm_head": "lm_head", "model.llm.unembed": "lm_head"}.get(name, name)
        name = name.replace(".w13_dn", ".gate_up_proj").replace(".w2_md", ".down_proj")
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
