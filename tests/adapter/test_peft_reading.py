"""What PEFT saves is read as PEFT itself applies it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conversion import convert, factors_of, plan, spec_of
from deltas import assert_same_deltas, read_deltas
from peft_models import KINDS, deltas_of, train_nothing_but_fill

from factories import TINY
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.factors import SiteFactors, to_float32

SPEC = spec_of(TINY)
ATTENTION = ["q_proj", "k_proj", "v_proj", "r_proj", "o_proj"]

CONFIGS: dict[str, dict[str, Any]] = {
    "attention": {"target_modules": ATTENTION},
    "q and r of two layers": {
        "target_modules": ["q_proj", "r_proj"],
        "layers_to_transform": [1, 3],
    },
    "dense": {"target_modules": ["gate_proj", "up_proj", "down_proj"]},
    "only dense up": {"target_modules": ["mlp.up_proj"]},
    "all linear": {"target_modules": "all-linear", "exclude_modules": ".*projection"},
    "a regular expression": {"target_modules": r".*layers\.[02]\.self_attn\.(k|v)_proj"},
    "head": {"target_modules": ["lm_head"]},
    "head with a copy of its base": {
        "target_modules": ["lm_head", "q_proj"],
        "save_embedding_layers": True,
    },
    "routed": {"target_parameters": ["experts.gate_up_proj", "experts.down_proj"]},
    "only routed gate_up": {"target_parameters": ["experts.gate_up_proj"]},
    "only routed down": {"target_parameters": ["mlp.experts.down_proj"]},
    "every down by a bare name": {"target_parameters": ["down_proj"]},
    "shared": {
        "target_parameters": [
            "shared_experts.gate_proj",
            "shared_experts.up_proj",
            "shared_experts.down_proj",
        ]
    },
    "shared gate": {"target_parameters": ["shared_experts.gate_proj"]},
    "shared up": {"target_parameters": ["shared_experts.up_proj"]},
    "shared down and gate": {
        "target_parameters": ["shared_experts.down_proj", "shared_experts.gate_proj"]
    },
    "shared up and gate": {
        "target_parameters": ["shared_experts.up_proj", "shared_experts.gate_proj"]
    },
    "shared up and down": {
        "target_parameters": ["shared_experts.up_proj", "shared_experts.down_proj"]
    },
    "parameters that differ from layer to layer": {
        "target_parameters": [
            "layers.1.mlp.experts.gate_up_proj",
            "layers.2.mlp.experts.down_proj",
            "layers.2.mlp.experts.gate_up_proj",
            "layers.3.mlp.shared_experts.up_proj",
            "layers.1.mlp.shared_experts.down_proj",
            "layers.1.mlp.shared_experts.up_proj",
        ]
    },
    "everything": {
        "target_modules": [*ATTENTION, "gate_proj", "up_proj", "mlp.down_proj", "lm_head"],
        "target_parameters": ["gate_up_proj", "down_proj", "gate_proj", "up_proj"],
    },
    "rsLoRA": {
        "target_modules": ["q_proj"],
        "target_parameters": ["down_proj"],
        "use_rslora": True,
    },
    "patterns": {
        "target_modules": ["q_proj", "o_proj", "gate_proj", "up_proj"],
        "target_parameters": ["experts.gate_up_proj", "shared_experts.down_proj"],
        "rank_pattern": {"mlp.experts.gate_up_proj": 5, r"layers\.2\..*o_proj": 1},
        "alpha_pattern": {"q_proj": 1, r"layers\.1\..*shared_experts.*": 6, "up_proj": 3},
    },
}


def save(kind: str, folder: Path, name: str) -> dict[str, np.ndarray]:
    """Let PEFT save an adapter and return what it adds to the weights itself."""
    config = {"r": 2, "lora_alpha": 8} | CONFIGS[name]
    return deltas_of(train_nothing_but_fill(kind, folder, **config))


def delta_of(factors: SiteFactors) -> np.ndarray:
    a, b = (to_float32(x, factors.dtype).astype(np.float64) for x in (factors.a, factors.b))
    delta = factors.scaling * (b @ a)
    return delta if delta.ndim == 3 else delta[None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CONFIGS)
def test_loaded_factors_and_calculator_are_what_peft_adds(
    tmp_path: Path, name: str, kind: str
) -> None:
    expected = save(kind, tmp_path, name)
    adapter = read_adapter(tmp_path)
    assert not adapter.unknown
    assert not adapter.problems
    assert bool(adapter.base_copies) == ("copy of its base" in name)
    loaded = factors_of(adapter, SPEC)
    calculated = read_deltas(tmp_path, "peft", TINY)
    assert set(loaded) == set(calculated) == set(expected)
    for site, delta in expected.items():
        bound = 1e-12 * max(abs(delta).max(), 1)
        assert abs(delta_of(loaded[site]) - delta).max() <= bound, site
        assert abs(calculated[site].delta() - delta).max() <= bound, site


@pytest.mark.parametrize("name", ["everything", "patterns", "head with a copy of its base"])
@pytest.mark.parametrize("target", ["tinker", "vllm", "peft"])
def test_what_peft_saves_is_converted_with_its_effect(
    tmp_path: Path, name: str, target: str
) -> None:
    save("text", tmp_path / "source", name)
    expected = read_deltas(tmp_path / "source", "peft", TINY)
    conversion = convert(tmp_path / "source", target, tmp_path / "out", SPEC)
    found = read_deltas(tmp_path / "out", target, TINY)
    folded = any("scaling folded" in change for change in conversion.changes)
    assert_same_deltas(found, expected, 2**-23 if folded else 0)
    has_copies = any("base weights beside the factors" in change for change in conversion.changes)
    assert has_copies == ("copy of its base" in name)


def test_parameters_that_nothing_tells_apart_stay_unknown(tmp_path: Path) -> None:
    save("text", tmp_path, "shared up and gate")
    config = (tmp_path / "adapter_config.json").read_text()
    cut = config.replace("shared_experts.", "other.")
    (tmp_path / "adapter_config.json").write_text(cut)
    adapter = read_adapter(tmp_path, "peft")
    assert len(adapter.unknown) == len(adapter.file.tensors)


def test_a_text_model_gets_text_names_and_a_multimodal_one_its_own(tmp_path: Path) -> None:
    save("mm", tmp_path, "attention")
    names = {o.spec.name for o in plan(tmp_path, "peft", SPEC).outputs}
    assert names == set(read_adapter(tmp_path).file.tensors)
