"""What an adapter lacks where others like it are, and how its experts are stored."""

import pytest
import torch

from checks.adapter_cases import SPEC, convert, drop, find, repeat_hidden_side, replace_with
from factories import TINY, write_released_adapter
from inkling_cli.checks.adapter import Consumer

LAYERS = "language_model.layers"


def found(folder, spec=SPEC, values=False):
    return find(folder, Consumer.NATIVE, spec=spec, values=values)


def only(folder, spec=SPEC):
    (finding,) = found(folder, spec)
    return finding


def without(*parts):
    def edit(tensors):
        drop(*[name for name in tensors if any(part in name for part in parts)])(tensors)

    return edit


@pytest.mark.parametrize("spec", [SPEC, None], ids=["with a model", "without"])
@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (["layers.1.attn.wr_du"], "1 module is missing where other layers have such"),
        (["layers.2.attn."], "5 modules are missing where other layers have such"),
        ([".wr_du"], "no layer has `attn.wr_du`, though there are `attn.wq_du`"),
        ([".experts.w2"], "no layer has `mlp.experts.w2`, though there are `mlp.experts.w1`"),
        ([".shared_experts.w3"], "no layer has `mlp.shared_experts.w3`"),
        (["layers.2.mlp.experts.w1"], "1 module is missing"),
        (["mlp.down_proj"], "no layer has `mlp.down`, though there are `mlp.gate`, `mlp.up`"),
        (["layers.2."], "11 modules are missing"),
    ],
)
def test_a_gap_is_told(tmp_path, parts, told, spec):
    finding = only(write_released_adapter(tmp_path / "a", edit=without(*parts)), spec)
    assert finding.code == "ADP011"
    assert finding.message.startswith(told)


@pytest.mark.parametrize(
    "parts",
    [
        [".wo_ud"],
        ["layers.0."],
        ["layers.3."],
        ["layers.2.", "layers.3."],
        ["attn."],
        [".experts.", "_experts."],
    ],
)
def test_what_people_leave_out_on_purpose_is_no_gap(tmp_path, parts):
    assert found(write_released_adapter(tmp_path / "a", edit=without(*parts))) == ()


def test_layers_that_the_config_chooses_are_no_gap(tmp_path):
    folder = write_released_adapter(
        tmp_path / "a", layers=[0, 1, 3], config={"layers_to_transform": [0, 1, 3]}
    )
    assert found(folder) == ()


def test_kinds_that_users_of_peft_choose_are_no_gap(tmp_path):
    released = write_released_adapter(tmp_path / "a", edit=without(".wk_dv", ".wr_du"))
    assert found(convert(released, "peft", tmp_path / "b")) == ()


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("3.mlp.experts.w3.lora_A.weight", (TINY.experts, 2, TINY.hidden)),
        ("1.mlp.experts.w2.lora_B.weight", (TINY.experts, TINY.hidden, 2)),
    ],
)
def test_a_module_with_another_layout_is_told(tmp_path, name, shape):
    edit = replace_with(f"{LAYERS}.{name}", torch.ones(*shape))
    finding = only(write_released_adapter(tmp_path / "a", edit=edit))
    assert finding.code == "ADP019"
    assert f"`layers.{name.partition('.lora')[0]}` once for each expert" in finding.message


@pytest.mark.parametrize("dialect", ["tinker", "vllm", "sglang", "peft"])
def test_experts_with_a_side_of_their_own_each_are_one_layout(tmp_path, dialect):
    released = write_released_adapter(tmp_path / "a", groups=["routed"], per_expert=True)
    assert found(convert(released, dialect, tmp_path / "b")) == ()


def test_copies_that_differ_are_no_copies(tmp_path):
    folder = write_released_adapter(tmp_path / "a", groups=["routed"], per_expert=True)
    assert "ADP020" not in {finding.code for finding in found(folder, values=True)}


@pytest.mark.parametrize("expert", [0, 2, TINY.experts - 1])
def test_one_number_in_one_expert_makes_a_copy_another(tmp_path, expert):
    def edit(tensors):
        repeat_hidden_side(tensors)
        for name, tensor in tensors.items():
            if "layers.1." in name and ("w2.lora_B" in name or "w1.lora_A" in name):
                tensor[expert, 1, 1] += 1

    folder = write_released_adapter(tmp_path / "a", groups=["routed"], edit=edit)
    (finding,) = (f for f in found(folder, values=True) if f.code == "ADP020")
    assert finding.message.startswith("the hidden side of `layers.1.mlp.experts.w3` is stored")


def test_copies_of_experts_stored_one_by_one_are_told(tmp_path):
    def edit(tensors):
        for name in [name for name in tensors if ".experts." in name]:
            stem, _, factor = name.partition(".experts.")
            kind, _, ending = factor.partition(".")
            word = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}[kind]
            tensor = tensors.pop(name)
            for expert in range(TINY.experts):
                part = tensor[expert % tensor.shape[0]].clone()
                tensors[f"{stem}.experts.{expert}.{word}.{ending}"] = part

    folder = write_released_adapter(tmp_path / "a", groups=["routed"], edit=edit)
    assert [finding.code for finding in found(folder, values=True)] == ["ADP020"]


def test_copies_are_told_by_kind_and_not_by_layer(tmp_path):
    folder = write_released_adapter(tmp_path / "a", groups=["routed"], edit=repeat_hidden_side)
    (finding,) = (f for f in found(folder, values=True) if f.code == "ADP020")
    names = "`layers.1.mlp.experts.w1`, `layers.1.mlp.experts.w2`, `layers.1.mlp.experts.w3`"
    assert names in finding.message
