"""What each consumer demands beyond names, with the smallest adapters that show it."""

from collections.abc import Iterable
from pathlib import Path

import forms
import pytest
import torch
from conversion import convert, is_folded, plan, refusal_of, spec_of
from deltas import assert_same_deltas, read_deltas
from lora_factors import Config, Factors

from factories import (
    TINY,
    Module,
    released_adapter_config,
    released_modules,
    write_adapter,
    write_json,
    write_released_adapter,
)
from inkling_runtime.errors import InklingError

SPEC = spec_of(TINY)
TARGETS = ("tinker", "vllm", "sglang", "peft")


def zero_padding(tensors: dict[str, torch.Tensor]) -> None:
    forms.zero_padding_rows(TINY, tensors)


def only(modules: Iterable[Module], *ends: str) -> list[Module]:
    return [m for m in modules if m.name.endswith(ends)]


def routed(per_expert: bool = False) -> list[Module]:
    return released_modules(TINY, {"routed"}, [1, 2], per_expert=per_expert)


SOURCES: dict[str, list[Module]] = {
    "only w1": only(routed(), "w1"),
    "only w3": only(routed(), "w3"),
    "only w2": only(routed(), "w2"),
    "w2 in one layer, all in another": [*only(routed()[:3], "w2"), *routed()[3:]],
    "only shared w2": only(released_modules(TINY, {"shared"}), "w2"),
    "only shared w3": only(released_modules(TINY, {"shared"}), "w3"),
    "per expert": routed(per_expert=True),
    "per expert beside shared experts": [
        *routed(per_expert=True),
        *released_modules(TINY, {"shared"}),
    ],
    "per expert w1 and w3, shared w2": [
        *only(routed(per_expert=True), "w1", "w3"),
        *only(routed(), "w2"),
    ],
    "shared w1 and w3, per expert w2": [
        *only(routed(), "w1", "w3"),
        *only(routed(per_expert=True), "w2"),
    ],
    "shared w1, per expert w3": [*only(routed(), "w1"), *only(routed(per_expert=True), "w3")],
    "shared in one layer, per expert in another": [*routed()[:3], *routed(per_expert=True)[3:]],
    "only q": only(released_modules(TINY, {"attention"}), "wq_du"),
    "without r": [m for m in released_modules(TINY, {"attention"}) if "wr_du" not in m.name],
    "only o": only(released_modules(TINY, {"attention"}), "wo_ud"),
    "only dense gate_up": only(released_modules(TINY, {"dense"}), "gate_up_proj"),
    "only dense down": only(released_modules(TINY, {"dense"}), "down_proj"),
    "only the head": released_modules(TINY, {"head"}),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SOURCES)
def test_companions_are_added_and_the_effect_stays(tmp_path: Path, name: str, target: str) -> None:
    source = write_adapter(tmp_path / "source", SOURCES[name], released_adapter_config())
    convert(source, target, tmp_path / "out", SPEC)
    expected = read_deltas(source, "tinker", TINY)
    assert_same_deltas(read_deltas(tmp_path / "out", target, TINY), expected)


def test_experts_go_to_vllm_one_by_one_unless_all_share_the_outer_factor(tmp_path: Path) -> None:
    shared = plan(write_released_adapter(tmp_path / "s"), "vllm", SPEC)
    names = {output.spec.name for output in shared.outputs}
    assert "language_model.layers.1.mlp.experts.w1.lora_A.weight" in names
    each = plan(write_released_adapter(tmp_path / "e", per_expert=True), "vllm", SPEC)
    names = {output.spec.name for output in each.outputs}
    assert "language_model.layers.1.mlp.experts.4.gate_proj.lora_A.weight" in names
    assert not any(".experts.w" in name and "sink" not in name for name in names)


def test_dense_rows_alternate_for_vllm(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path / "source", groups={"dense"})
    convert(source, "vllm", tmp_path / "out", SPEC)
    name = "language_model.layers.0.mlp.gate_up_proj"
    before = read_deltas(source, "tinker", TINY)
    after = read_deltas(tmp_path / "out", "vllm", TINY)
    assert_same_deltas(after, before)
    config = forms.vllm_config([Module(name, 1, 1)], 2, 8)
    write_json(source / "adapter_config.json", config)
    with pytest.raises(AssertionError):
        assert_same_deltas(read_deltas(source, "vllm", TINY), before)


def test_vllm_targets_are_the_last_parts_of_the_written_names(tmp_path: Path) -> None:
    conversion = plan(write_released_adapter(tmp_path / "s"), "vllm", SPEC)
    last = {o.spec.name.rsplit(".", 3)[1] for o in conversion.outputs}
    assert set(conversion.config["target_modules"]) == last


def test_sglang_targets_are_runtime_names(tmp_path: Path) -> None:
    conversion = plan(write_released_adapter(tmp_path / "s"), "sglang", SPEC)
    assert conversion.config["target_modules"] == forms.SGLANG_TARGETS
    one = write_released_adapter(tmp_path / "o", groups={"dense"})
    assert plan(one, "sglang", SPEC).config["target_modules"] == ["down_proj", "gate_up_proj"]


PATTERNS = {
    "rsLoRA": {"use_rslora": True},
    "rank": {"rank_pattern": {"wq_du": 3, r".*\.w2": 4}},
    "alpha": {"alpha_pattern": {"wq_du": 3, "lm_head": 1}},
    "all": {
        "use_rslora": True,
        "rank_pattern": {"layers.2.attn.*": 5},
        "alpha_pattern": {r".*\.w[13]": 3},
    },
}


@pytest.mark.parametrize("name", PATTERNS)
def test_sglang_gets_one_rank_and_one_scaling_folded_in_where_the_plan_says(
    tmp_path: Path, name: str
) -> None:
    config = released_adapter_config(2, 8, **PATTERNS[name])
    modules = released_modules(TINY)
    source = write_adapter(
        tmp_path / "source", modules, config, dtype="F32", rank_of=Config(config).rank
    )
    conversion = convert(source, "sglang", tmp_path / "out", SPEC)
    for key in ("rank_pattern", "alpha_pattern"):
        assert not conversion.config.get(key)
    assert not conversion.config.get("use_rslora")
    assert is_folded(conversion) == (name != "rsLoRA")
    found = read_deltas(tmp_path / "out", "sglang", TINY)
    assert_same_deltas(found, read_deltas(source, "tinker", TINY), 2**-23)


def test_a_scaling_that_sglang_would_ignore_keeps_its_meaning(tmp_path: Path) -> None:
    """Names are SGLang's, but the factors were trained with the config's α/√r."""
    config = forms.sglang_config(4, 8, use_rslora=True)
    modules = forms.sglang_modules(TINY, attention="qkvr")
    source = write_adapter(tmp_path / "source", modules, config)
    assert refusal_of(source, "vllm", tmp_path / "out", SPEC) is None
    ignored = read_deltas(source, "sglang", TINY)
    meant = {site: Factors(f.a, f.b, 2 * f.scaling) for site, f in ignored.items()}
    assert_same_deltas(read_deltas(tmp_path / "out", "vllm", TINY), meant)


@pytest.mark.parametrize("zero", ["most", "few"])
def test_an_alpha_of_zero_is_no_effect_and_no_crash(tmp_path: Path, zero: str) -> None:
    alpha, other = (0, 8) if zero == "most" else (8, 0)
    config = released_adapter_config(2, alpha, alpha_pattern={"wq_du": other, "experts.w1": other})
    source = write_adapter(tmp_path / "source", released_modules(TINY), config)
    for target in TARGETS:
        convert(source, target, tmp_path / target, SPEC)
        found = read_deltas(tmp_path / target, target, TINY)
        assert_same_deltas(found, read_deltas(source, "tinker", TINY), 2**-8)


def test_a_padded_head_is_cut_for_sglang_only_where_it_is_zero(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path / "source", groups={"head"}, head_rows="padded")
    with pytest.raises(InklingError, match="the surplus rows are not zero") as caught:
        plan(source, "sglang", SPEC)
    assert "--force" in (caught.value.hint or "")
    forced = plan(source, "sglang", SPEC, force=True)
    assert {o.spec.shape[0] for o in forced.outputs if "lora_B" in o.spec.name} == {TINY.unpadded}


def test_a_padded_head_is_not_written_for_sglang_unseen(tmp_path: Path) -> None:
    source = write_released_adapter(
        tmp_path / "source", groups={"head"}, head_rows="padded", edit=zero_padding
    )
    error = refusal_of(source, "sglang", tmp_path / "out", None)
    if error is not None:
        assert "--model" in (error.hint or "")
    else:
        changes = plan(source, "sglang", None).changes
        assert any("lm_head" in change for change in changes)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SOURCES)
def test_without_a_model_the_same_effect_or_a_hint_to_pass_it(
    tmp_path: Path, name: str, target: str
) -> None:
    source = write_adapter(tmp_path / "source", SOURCES[name], released_adapter_config())
    error = refusal_of(source, target, tmp_path / "out", None)
    if error is not None:
        assert "--model" in (error.hint or "")
    else:
        expected = read_deltas(source, "tinker", TINY)
        assert_same_deltas(read_deltas(tmp_path / "out", target, TINY), expected)
