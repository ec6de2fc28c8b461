"""Inputs at the edge: each is converted with its effect kept, or refused with the reason."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import forms
import numpy as np
import pytest
import torch
from conversion import convert, plan, refusal_of, spec_of
from deltas import assert_same_deltas, read_deltas

from factories import (
    TINY,
    Module,
    Sizes,
    released_adapter_config,
    released_modules,
    safetensors_bytes,
    write_adapter,
    write_json,
    write_released_adapter,
)
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.errors import InklingError

SPEC = spec_of(TINY)
TARGETS = ("tinker", "vllm", "sglang", "peft")
Tensors = dict[str, torch.Tensor]


def zero_padding(tensors: Tensors) -> None:
    forms.zero_padding_rows(TINY, tensors)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("spec", [SPEC, None], ids=["with model", "without model"])
def test_one_inner_factor_for_all_experts_is_expanded_or_refused(
    tmp_path: Path, target: str, spec: ModelSpec | None
) -> None:
    routed = released_modules(TINY, {"routed"})
    modules = [Module(m.name, m.in_features, m.out_features, 1, 1) for m in routed]
    source = write_adapter(tmp_path / "source", modules, released_adapter_config())
    if refusal_of(source, target, tmp_path / "out", spec) is None:
        expected = read_deltas(source, "tinker", TINY)
        assert_same_deltas(read_deltas(tmp_path / "out", target, TINY), expected)


def widen(*parts: str) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        for name in tensors:
            if all(part in name for part in parts):
                tensors[name] = tensors[name].float()

    return edit


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("parts", [("lora_A",), ("layers.2.",), ("w3", "lora_B"), ("w3",)], ids=str)
def test_dtypes_may_differ_between_factors(tmp_path: Path, target: str, parts: tuple) -> None:
    source = write_released_adapter(tmp_path / "source", edit=widen(*parts))
    error = refusal_of(source, target, tmp_path / "out", SPEC)
    if error is not None:
        assert "dtype" in error.message
    else:
        expected = read_deltas(source, "tinker", TINY)
        assert_same_deltas(read_deltas(tmp_path / "out", target, TINY), expected)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("letter", ["A", "B", "both"])
def test_gate_and_up_of_unlike_dtypes_are_converted_or_refused(
    tmp_path: Path, target: str, letter: str
) -> None:
    def edit(tensors: Tensors) -> None:
        forms.tie_gates(tensors)
        widen(".up_proj.", "lora_" if letter == "both" else f"lora_{letter}")(tensors)

    modules = forms.peft_modules(TINY, {"dense"})
    source = write_adapter(
        tmp_path / "source", modules, forms.peft_config(modules, 2, 8), edit=edit
    )
    error = refusal_of(source, target, tmp_path / "out", SPEC, dialect="peft")
    if error is not None:
        assert "dtype" in error.message
    else:
        expected = read_deltas(source, "peft", TINY)
        assert_same_deltas(read_deltas(tmp_path / "out", target, TINY), expected)


@pytest.mark.parametrize("target", ["tinker", "vllm", "sglang"])
@pytest.mark.parametrize("tied", [True, False])
def test_gate_and_up_of_unlike_widths_are_refused(tmp_path: Path, target: str, tied: bool) -> None:
    L = "language_model.layers.0.mlp."
    modules = [Module(f"{L}gate_proj", 40, 36), Module(f"{L}up_proj", 40, 34)]
    source = write_adapter(
        tmp_path / "source",
        modules,
        forms.sglang_config(2, 8),
        edit=forms.tie_gates if tied else None,
    )
    with pytest.raises(InklingError):
        convert(source, target, tmp_path / "out", None, dialect="sglang")


def test_settings_beyond_plain_lora_stop_a_conversion(tmp_path: Path) -> None:
    for key, value in {"use_dora": True, "bias": "all", "modules_to_save": ["norm"]}.items():
        source = write_released_adapter(tmp_path / key, config={key: value})
        with pytest.raises(InklingError, match=f"has {key} .*more than s·B·A"):
            plan(source, "vllm", SPEC)


def test_selectors_of_the_source_do_not_reach_the_target(tmp_path: Path) -> None:
    modules = forms.peft_modules(TINY)
    config = forms.peft_config(
        modules, 2, 8, layers_to_transform=[1], layers_pattern="layers", exclude_modules=["q_proj"]
    )
    source = write_adapter(tmp_path / "s", modules, config, edit=zero_padding)
    for target in ("tinker", "vllm", "sglang"):
        written = plan(source, target, SPEC, dialect="peft").config
        assert not {"layers_to_transform", "exclude_modules", "target_parameters"} & set(written)


def test_everything_else_in_the_config_is_kept(tmp_path: Path) -> None:
    extra = {"base_model_name_or_path": "org/model", "revision": "main", "x": {"é": [1, None]}}
    source = write_released_adapter(tmp_path / "s", config=extra)
    for target in TARGETS:
        written = plan(source, target, SPEC).config
        assert {key: written[key] for key in extra} == extra
        assert (written["r"], written["lora_alpha"], written["peft_type"]) == (2, 8, "LORA")


def test_base_copies_are_left_out_and_named(tmp_path: Path) -> None:
    def edit(tensors: Tensors) -> None:
        tensors["base_model.model.lm_head.base_layer.weight"] = torch.zeros(64, 40)

    modules = forms.peft_modules(TINY, {"head", "attention"})
    config = forms.peft_config(modules, 2, 8)
    source = write_adapter(tmp_path / "s", modules, config, edit=edit)
    conversion = plan(source, "tinker", SPEC)
    assert any(
        "base weights beside the factors, left out: 1" in change for change in conversion.changes
    )
    assert not any("base_layer" in output.spec.name for output in conversion.outputs)


def test_metadata_is_kept_and_stamped(tmp_path: Path) -> None:
    source = write_adapter(
        tmp_path / "s", released_modules(TINY), released_adapter_config(), metadata={"run": "7"}
    )
    assert plan(source, "tinker", SPEC).metadata == {"run": "7"}
    vllm = plan(source, "vllm", SPEC).metadata
    assert vllm["run"] == "7"
    assert vllm["inkling.dialect"] == "vllm"


def test_rows_of_a_head_in_metadata_are_not_believed_blindly(tmp_path: Path) -> None:
    for rows in ("0", "61", "-3", "x", "9" * 30, "٣"):
        source = write_adapter(
            tmp_path / rows,
            released_modules(TINY, {"head"}),
            released_adapter_config(),
            metadata={"inkling.head_rows": rows},
        )
        out = tmp_path / f"{rows}-out"
        if refusal_of(source, "tinker", out, SPEC) is None:
            expected = read_deltas(source, "tinker", TINY)
            assert_same_deltas(read_deltas(out, "tinker", TINY), expected)


def test_two_square_widths_do_not_confuse_orientation(tmp_path: Path) -> None:
    square = Sizes(hidden=8, inner=4, dense=4, heads=2, head_dim=4, d_rel=4, shared=2, experts=4)
    spec = spec_of(square)
    for rank in (2, 4, 8):
        source = write_released_adapter(tmp_path / str(rank) / "s", square, rank=rank)
        expected = read_deltas(source, "tinker", square)
        for target in TARGETS:
            out = tmp_path / str(rank) / target
            convert(source, target, out, spec)
            assert_same_deltas(read_deltas(out, target, square), expected)


def test_a_scaling_beyond_every_float_is_refused(tmp_path: Path) -> None:
    config = released_adapter_config(2, 1.5e308)
    source = write_adapter(tmp_path / "s", released_modules(TINY, {"routed"}), config)
    with pytest.raises(InklingError):
        convert(source, "peft", tmp_path / "out", SPEC)


def test_text_that_no_file_can_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path / "s", groups={"head"})
    config = source / "adapter_config.json"
    text = config.read_text().replace('"tiny"', r'"\ud800"')
    config.write_text(text)
    with pytest.raises(InklingError):
        convert(source, "vllm", tmp_path / "out", SPEC)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s"]


def test_a_head_of_zero_rows_is_refused(tmp_path: Path) -> None:
    empty = replace(TINY, unpadded=0)
    modules = released_modules(empty, {"head"})
    source = write_adapter(tmp_path / "s", modules, released_adapter_config())
    with pytest.raises(InklingError, match="empty"):
        plan(source, "vllm", SPEC)


def test_factors_of_any_values_are_moved_as_bytes(tmp_path: Path) -> None:
    modules = released_modules(TINY, {"head"})
    a, b = np.full((2, 40), 0x7FA1, np.uint16), np.full((60, 2), 0xFF81, np.uint16)
    name = modules[0].name
    header = {
        f"{name}.lora_A.weight": {"dtype": "BF16", "shape": [2, 40], "data_offsets": [0, 160]},
        f"{name}.lora_B.weight": {"dtype": "BF16", "shape": [60, 2], "data_offsets": [160, 400]},
    }
    folder = tmp_path / "s"
    write_json(folder / "adapter_config.json", released_adapter_config())
    data = safetensors_bytes(header, a.tobytes() + b.tobytes())
    (folder / "adapter_model.safetensors").write_bytes(data)
    for target in TARGETS:
        convert(folder, target, tmp_path / target, SPEC)
        written = (tmp_path / target / "adapter_model.safetensors").read_bytes()
        assert a.tobytes() in written
        assert b.tobytes() in written
