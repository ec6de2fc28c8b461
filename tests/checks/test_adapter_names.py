"""Names that no dialect has: what each of them is taken for."""

import pytest

from checks.adapter_cases import Q1, SPEC, add, convert, drop, find, rename
from factories import TINY, write_released_adapter
from inkling_cli.checks.adapter import Consumer


def found(folder, spec=SPEC):
    return find(folder, Consumer.NATIVE, spec=spec)


def only(folder):
    (finding,) = found(folder)
    return finding


def both(*edits):
    def edit(tensors):
        for one in edits:
            one(tensors)

    return edit


PREFIXES = (
    "base_model.model.base_model.model.language_model.",
    "language_model.model.",
    "model.model.language_model.",
    "model.transformer.",
)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_wrong_prefix_of_layers_is_told_with_the_right_one(tmp_path, prefix):
    edit = rename("language_model.layers.", f"{prefix}layers.")
    finding = only(write_released_adapter(tmp_path / "a", edit=edit))
    assert finding.code == "ADP010"
    assert finding.message.startswith(f"80 of 82 tensors begin with `{prefix}`, expected `")
    assert finding.message.endswith("language_model.`")


def test_one_layer_with_another_prefix_is_told(tmp_path):
    edit = rename("language_model.layers.2.", "language_model.model.layers.2.")
    finding = only(write_released_adapter(tmp_path / "a", edit=edit))
    assert (finding.code, finding.message[:15]) == ("ADP010", "22 of 82 tensor")


def test_the_head_with_another_prefix_is_told(tmp_path):
    edit = rename("language_model.lm_head", "model.model.lm_head")
    finding = only(write_released_adapter(tmp_path / "a", edit=edit))
    assert finding.code == "ADP010"
    assert "begin with `model.model.`, expected `language_model.`" in finding.message


def test_names_of_peft_prefixed_twice_are_told_with_pefts_prefix(tmp_path):
    folder = convert(write_released_adapter(tmp_path / "a"), "peft", tmp_path / "b")
    twice = rename_on_disk(folder, "base_model.model.", "base_model.model.base_model.model.")
    findings = found(twice)
    assert {finding.code for finding in findings} == {"ADP010"}
    messages = " ".join(finding.message for finding in findings)
    assert "expected `base_model.model.model.language_model.`" in messages


def rename_on_disk(folder, old, new):
    from safetensors.torch import load_file, save_file

    file = folder / "adapter_model.safetensors"
    tensors = load_file(file)
    rename(old, new)(tensors)
    save_file(tensors, file)
    return folder


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("layers.1.attn.wq_dv", "`attn.wq_dv` looks like `attn.wq_du`"),
        ("layers.1.atn.wq_du", "`atn.wq_du` looks like `attn.wq_du`"),
        ("layers.1.attn.wqdu", "`attn.wqdu` looks like `attn.wq_du`"),
    ],
)
def test_a_typo_is_told_with_what_the_layer_lacks(tmp_path, typo, meant):
    edit = rename("layers.1.attn.wq_du", typo)
    finding = only(write_released_adapter(tmp_path / "a", edit=edit))
    assert finding.code == "ADP001"
    assert finding.help.startswith(meant)


@pytest.mark.parametrize(
    ("released", "raw"),
    [
        ("layers.0.mlp.down_proj", "layers.0.mlp.w2_md"),
        ("language_model.lm_head", "language_model.unembed"),
    ],
)
def test_a_name_of_the_base_checkpoint_is_told_as_such(tmp_path, released, raw):
    edit = rename(released, raw)
    finding = only(write_released_adapter(tmp_path / "a", edit=edit))
    assert finding.code == "ADP001"
    assert "is the base checkpoint's name, adapters have `" in finding.help


def test_an_adapter_under_the_names_of_the_base_checkpoint_is_understood(tmp_path):
    names = {
        "language_model.layers": "model.llm.layers",
        "mlp.gate_up_proj": "mlp.w13_dn",
        "mlp.down_proj": "mlp.w2_md",
        "language_model.lm_head": "model.llm.unembed",
    }
    edit = both(*(rename(old, new) for old, new in names.items()))
    assert not found(write_released_adapter(tmp_path / "a", edit=edit))


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        (".lora_A.default.weight", "names end in `lora_A.default.weight`"),
        (".lora_a", "names end in `lora_a`, as MLX writes them"),
        (".lora_down.weight", "names end in `lora_down.weight`, as kohya writes them"),
        (".lora_embedding_A", "names with `lora_embedding_` are of an embedding"),
    ],
)
def test_a_foreign_ending_is_told(tmp_path, ending, told):
    edit = both(rename(f"{Q1}.lora_A.weight", f"{Q1}{ending}"), drop(f"{Q1}.lora_B.weight"))
    finding = only(write_released_adapter(tmp_path / "a", edit=edit))
    assert finding.code == "ADP001"
    assert finding.help.startswith(told)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        (f"{Q1}.lora_magnitude_vector", "DoRA magnitudes"),
        (f"{Q1}.lora_magnitude_vector.weight", "DoRA magnitudes"),
        (f"{Q1}.lora_B.bias", "biases of factors"),
        ("language_model.layers.1.attn.wq_du.bias", "biases"),
        ("language_model.lm_head.weight", "whole weights"),
        ("language_model.lm_head.modules_to_save.default.weight", "whole weights of"),
        ("language_model.embed.token_adapter.trainable_tokens_delta", "retrained rows"),
    ],
)
def test_a_tensor_that_is_no_factor_is_told_as_what_it_is(tmp_path, name, what):
    finding = only(write_released_adapter(tmp_path / "a", edit=add(name, TINY.query)))
    assert finding.code == "ADP009"
    assert finding.message.startswith(f"1 of 83 tensors are {what}")


def test_each_unknown_tensor_is_told_once(tmp_path):
    edit = both(
        rename("layers.1.attn.wo_ud", "layers.1.attn.wo_du"),
        rename("language_model.layers.2.", "language_model.model.layers.2."),
        add(f"{Q1}.lora_magnitude_vector", TINY.query),
        add("nonsense", 1),
    )
    findings = found(write_released_adapter(tmp_path / "a", edit=edit))
    counts = {finding.code: int(finding.message.split()[0]) for finding in findings}
    assert counts == {"ADP001": 3, "ADP009": 1, "ADP010": 22}


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("layers.3.attn", "layers.9.attn", "which has the layers 0 to 3"),
        ("layers.1.mlp.experts.w1", "layers.0.mlp.experts.w1", "dense there, without experts"),
        ("layers.0.mlp.down_proj", "layers.1.mlp.down_proj", "experts there, not a dense MLP"),
    ],
)
def test_a_module_in_the_wrong_layer_is_told_with_the_reason(tmp_path, old, new, why):
    finding = only(write_released_adapter(tmp_path / "a", edit=rename(old, new)))
    assert finding.code == "ADP006"
    assert why in finding.message
