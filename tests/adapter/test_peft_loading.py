"""PEFT itself loads what is written for it, to the last tensor, and adds the same deltas."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forms
import numpy as np
import peft_models
import pytest
import torch
from conversion import convert, spec_of
from deltas import read_deltas
from lora_factors import Config, Factors
from peft_models import KINDS, base_model, deltas_of, logits_of

from factories import (
    GROUPS,
    TINY,
    released_adapter_config,
    released_modules,
    transformers_config,
    write_adapter,
)
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.arrays import CONTENTS
from inkling_runtime.adapter.convert.options import Options
from inkling_runtime.adapter.convert.plan import plan_conversion
from inkling_runtime.adapter.convert.write import write_conversion
from inkling_runtime.adapter.dialects.peft import PEFT
from inkling_runtime.adapter.model_spec import ModelSpec, parse_model_spec
from inkling_runtime.adapter.sites import Group, SiteKind

TOLERANCE = 1e-12


@dataclass(frozen=True)
class Case:
    """A released adapter that is converted for PEFT."""

    groups: tuple[str, ...] = GROUPS
    layers: tuple[int, ...] = (0, 1, 2, 3)
    config: dict[str, Any] = field(default_factory=dict)
    tied: bool = False
    per_expert: bool = False
    head_rows: str = "unpadded"
    drop: tuple[str, ...] = ()


CASES = {
    "everything": Case(),
    "w1 and w3 over one A": Case(tied=True),
    "everything per expert": Case(per_expert=True),
    "padded head": Case(head_rows="padded"),
    "attention": Case(("attention",)),
    "dense": Case(("dense",)),
    "routed experts": Case(("routed",)),
    "shared experts": Case(("shared",)),
    "head": Case(("head",)),
    "two layers": Case(layers=(0, 2)),
    "experts of one layer": Case(("routed", "shared"), layers=(3,)),
    "only gate": Case(("routed", "shared"), drop=("w2", "w3")),
    "only down": Case(("routed", "shared"), drop=("w1", "w3")),
    "only shared up": Case(("shared",), drop=("w1", "w2")),
    "dense without down": Case(("dense", "attention"), drop=("down_proj", "wr_du")),
    "rsLoRA": Case(config={"use_rslora": True}),
    "rsLoRA over one A": Case(config={"use_rslora": True}, tied=True),
    "ranks": Case(
        config={"rank_pattern": {"wq_du": 3, r"layers\.2\..*experts\.w2": 5, "lm_head": 1}}
    ),
    "alphas": Case(
        config={"alpha_pattern": {r"layers\.[12]\..*": 2, "gate_up_proj": 3, ".*w2": 16}}
    ),
    "ranks and alphas and rsLoRA": Case(
        config={
            "use_rslora": True,
            "rank_pattern": {r".*\.shared_experts\.w[13]": 3, "wo_ud": 4},
            "alpha_pattern": {"wo_ud": 1, r"layers\.1\.attn.*": 5},
        },
    ),
}


def spec_for(kind: str) -> ModelSpec:
    return spec_of(TINY) if kind == "mm" else parse_model_spec(transformers_config(TINY))


def write_source(folder: Path, case: Case) -> Path:
    modules = released_modules(
        TINY, case.groups, case.layers, head_rows=case.head_rows, per_expert=case.per_expert
    )
    config = released_adapter_config(2, 8, **case.config)
    return write_adapter(
        folder,
        [m for m in modules if m.name.rpartition(".")[2] not in case.drop],
        config,
        dtype="F32",
        rank_of=Config(config).rank,
        edit=forms.tie_gates if case.tied else None,
    )


def assert_peft_adds(found: dict[str, np.ndarray], expected: dict[str, Factors]) -> None:
    assert set(found) == {site for site, f in expected.items() if f.delta().any()}
    for site, delta in found.items():
        wanted = expected[site].delta()
        bound = TOLERANCE * max(abs(wanted).max(), 1)
        assert delta.shape == wanted.shape
        assert abs(delta - wanted).max() <= bound, site


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_peft_loads_every_tensor_and_adds_the_same_deltas(
    tmp_path: Path, name: str, kind: str
) -> None:
    source = write_source(tmp_path / "source", CASES[name])
    convert(source, "peft", tmp_path / "out", spec_for(kind))
    model = peft_models.load(kind, tmp_path / "out")
    assert_peft_adds(deltas_of(model), read_deltas(source, "tinker", TINY))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("groups", [*([group] for group in Group), [Group.ATTENTION, Group.HEAD]])
def test_peft_takes_what_is_left_when_groups_are_dropped_without_a_warning(
    tmp_path: Path, groups: list[Group], kind: str
) -> None:
    source = read_adapter(write_source(tmp_path / "source", CASES["everything"]))
    options = Options(dropped=frozenset(groups))
    plan = plan_conversion(source, PEFT, spec_for(kind), CONTENTS, options)
    write_conversion(plan, tmp_path / "out")
    found = deltas_of(peft_models.load(kind, tmp_path / "out"))
    kept = set(Group) - set(groups)
    expected = read_deltas(tmp_path / "source", "tinker", TINY)
    left = {site: factors for site, factors in expected.items() if group_of(site) in kept}
    assert left
    assert_peft_adds(found, left)


def group_of(site: str) -> Group:
    """Return the group of a site of `read_deltas`."""
    name = site.removeprefix("layers.").partition(".")[2]
    return next((kind.group for kind in SiteKind if kind.value == name), Group.HEAD)


def test_without_a_model_the_full_names_load_too(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", Case(("attention", "dense", "routed", "shared")))
    convert(source, "peft", tmp_path / "out", None)
    model = peft_models.load("mm", tmp_path / "out")
    assert_peft_adds(deltas_of(model), read_deltas(source, "tinker", TINY))


def test_equal_a_keep_the_rank_and_unlike_a_double_it(tmp_path: Path) -> None:
    for tied, rank in ((True, 2), (False, 4)):
        source = write_source(tmp_path / str(tied), Case(("routed",), tied=tied))
        conversion = convert(source, "peft", tmp_path / f"{tied}-out", spec_for("mm"))
        gate_up = [
            output.spec.shape
            for output in conversion.outputs
            if output.spec.name.endswith("experts.base_layer.lora_A.weight")
        ]
        assert gate_up == [(TINY.experts * rank, TINY.hidden)] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_the_unmerged_forward_is_the_base_with_the_deltas_added(tmp_path: Path, kind: str) -> None:
    source = write_source(tmp_path / "source", CASES["ranks and alphas and rsLoRA"])
    convert(source, "peft", tmp_path / "out", spec_for(kind))
    unmerged = logits_of(peft_models.load(kind, tmp_path / "out"))
    model = base_model(kind)
    before = logits_of(model)
    add_deltas(model, read_deltas(source, "tinker", TINY))
    after = logits_of(model)
    assert (after - before).abs().max() > 0.1
    assert torch.allclose(unmerged, after, rtol=0, atol=1e-4 * float(after.abs().max()))


def add_deltas(model: torch.nn.Module, deltas: dict[str, Factors]) -> None:
    """Add deltas to a transformers model's weights, by names written out here."""
    language = getattr(model.model, "language_model", model.model)
    attention = {"wq_du": "q", "wk_dv": "k", "wv_dv": "v", "wr_du": "r", "wo_ud": "o"}
    weights = {"lm_head": model.lm_head.weight}
    for i, layer in enumerate(language.layers):
        for name, letter in attention.items():
            linear = getattr(layer.self_attn, f"{letter}_proj")
            weights[f"layers.{i}.attn.{name}"] = linear.weight
        if i < TINY.num_dense:
            for name in ("gate", "up", "down"):
                weights[f"layers.{i}.mlp.{name}"] = getattr(layer.mlp, f"{name}_proj").weight
            continue
        experts, shared = layer.mlp.experts, layer.mlp.shared_experts
        weights |= {
            f"layers.{i}.mlp.experts.w1": experts.gate_up_proj[:, : TINY.inner],
            f"layers.{i}.mlp.experts.w3": experts.gate_up_proj[:, TINY.inner :],
            f"layers.{i}.mlp.experts.w2": experts.down_proj,
            f"layers.{i}.mlp.shared_experts.w1": shared.gate_proj,
            f"layers.{i}.mlp.shared_experts.w3": shared.up_proj,
            f"layers.{i}.mlp.shared_experts.w2": shared.down_proj,
        }
    with torch.no_grad():
        for site, factors in deltas.items():
            delta = torch.from_numpy(factors.delta())
            weights[site] += delta if weights[site].ndim == 3 else delta[0]
