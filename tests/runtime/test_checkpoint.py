"""What a checkpoint may hold, and what it is refused for. The messages are the interface."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import TEXT, make_multimodal_model, random_ids, save
from torch import Tensor

from inkling_runtime.adapter.model_spec import parse_model_spec, read_model_spec
from inkling_runtime.errors import InklingError
from inkling_runtime.llm import LLM
from inkling_runtime.model.checkpoint import Checkpoint, load_checkpoint
from inkling_runtime.model.checkpoint_names import LAYOUTS
from inkling_runtime.model.features import require_supported
from inkling_runtime.model.parameters import (
    MODEL_PARAMETERS,
    dimensions,
    layer_parameters,
    parse_shape,
)

Edit = Callable[[dict[str, Tensor]], object]


@pytest.fixture(scope="module")
def raw_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(make_multimodal_model(), tmp_path_factory.mktemp("raw"))


@pytest.fixture
def edited(raw_folder: Path, tmp_path: Path) -> Callable[[Edit], Path]:
    """Return a function that copies the raw checkpoint with its tensors changed."""

    def edit(change: Edit) -> Path:
        shutil.copy(raw_folder / "config.json", tmp_path)
        tensors = load_file(raw_folder / "model.safetensors")
        change(tensors)
        save_file(tensors, tmp_path / "model.safetensors")
        return tmp_path

    return edit


def load(folder: Path, dtype: torch.dtype = torch.float32) -> Checkpoint:
    return load_checkpoint(folder, read_model_spec(folder), torch.device("cpu"), dtype)


def assert_refused(folder: Path, message: str, hint: str | None = None) -> None:
    with pytest.raises(InklingError) as caught:
        load(folder)
    assert caught.value.message == message.replace("FOLDER", str(folder))
    assert caught.value.hint == hint


def rename(tensors: dict[str, Tensor], old: str, new: str) -> None:
    tensors[new] = tensors.pop(old)


def test_every_parameter_is_filled_by_each_layout(raw_folder: Path) -> None:
    spec = read_model_spec(raw_folder)
    for layout in LAYOUTS:
        assert {s.parameter for s in layout.model_names.values()} == set(MODEL_PARAMETERS)
        for layer in spec.layers:
            parameters = layer_parameters(layer)
            sources = layout.names_of(layer).values()
            assert {source.parameter for source in sources} == set(parameters)
            letters = dimensions(spec, layer)
            for name, parameter in parameters.items():
                sizes = [
                    torch.Size(parse_shape(source.shape, letters)).numel()
                    for source in sources
                    if source.parameter == name
                ]
                assert sum(sizes) == torch.Size(parse_shape(parameter.shape, letters)).numel()


def test_both_layouts_give_the_same_parameters_bit_for_bit(
    raw_folder: Path, tmp_path: Path
) -> None:
    save(make_multimodal_model(), tmp_path, save_original_format=False)
    raw, other = load(raw_folder).weights, load(tmp_path).weights
    assert raw.keys() == other.keys()
    assert all(torch.equal(raw[name], other[name]) for name in raw)


def test_bf16_keeps_convolutions_and_the_routers_bias_and_scale_in_fp32(raw_folder: Path) -> None:
    exact, weights = load(raw_folder).weights, load(raw_folder, torch.bfloat16).weights
    kept = ("_conv", "gate.bias", "gate.global_scale")
    for name, weight in weights.items():
        if name.endswith(kept):
            assert torch.equal(weight, exact[name]), name
        elif name.endswith("gate.weight"):
            assert torch.equal(weight, exact[name].bfloat16().float()), name
        else:
            assert torch.equal(weight, exact[name].bfloat16()), name


def test_draft_layers_and_towers_are_ignored(edited: Callable[[Edit], Path]) -> None:
    folder = edited(lambda tensors: tensors.update({"model.mtp.layers.0.x": torch.zeros(1)}))
    assert load(folder).notes == []


def test_a_head_without_padded_rows_is_accepted(edited: Callable[[Edit], Path]) -> None:
    name = "model.llm.unembed.weight"
    folder = edited(lambda tensors: tensors.update({name: tensors[name][:61].clone()}))
    assert load(folder).weights["head"].shape == (61, 40)


def test_adapter_tensors_among_the_base_are_skipped_and_noted(
    edited: Callable[[Edit], Path],
) -> None:
    names = [f"model.llm.layers.{i}.attn.wq_du.lora_{f}.weight" for i in (0, 1) for f in "AB"]
    folder = edited(lambda tensors: tensors.update({name: torch.zeros(2, 2) for name in names}))
    llm = LLM(folder, device="cpu")
    assert llm.notes == [
        f"`{folder}` also holds 4 adapter tensors, which were not read: "
        "`model.llm.layers.0.attn.wq_du.lora_A.weight`, "
        "`model.llm.layers.0.attn.wq_du.lora_B.weight`, "
        "`model.llm.layers.1.attn.wq_du.lora_A.weight` and 1 more"
    ]
    assert llm.logits(random_ids(3)).isfinite().all()


def test_missing_tensors_are_named(edited: Callable[[Edit], Path]) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        rename(tensors, "model.llm.layers.0.mlp.w2_md.weight", "model.llm.layers.0.mlp.down.weight")
        for index in range(4):
            del tensors[f"model.llm.layers.{index}.attn_norm.weight"]

    assert_refused(
        edited(change),
        "`FOLDER` lacks tensors of the raw layout: `model.llm.layers.0.attn_norm.weight`, "
        "`model.llm.layers.0.mlp.w2_md.weight`, `model.llm.layers.1.attn_norm.weight` and 2 more"
        "; it has unknown ones: `model.llm.layers.0.mlp.down.weight`",
    )


def test_surplus_tensors_are_named(edited: Callable[[Edit], Path]) -> None:
    extra = {"model.llm.layers.5.attn_norm.weight": torch.zeros(40)}
    assert_refused(
        edited(lambda tensors: tensors.update(extra)),
        "`FOLDER` has tensors that this model has no place for: "
        "`model.llm.layers.5.attn_norm.weight`",
        "compare config.json with the files: layers, dense layers and experts must agree",
    )


def test_wrong_shapes_are_named_with_both(edited: Callable[[Edit], Path]) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors["model.llm.layers.2.mlp.experts.w2_weight"] = torch.zeros(7, 20, 40)
        tensors["model.llm.unembed.weight"] = torch.zeros(60, 40)

    assert_refused(
        edited(change),
        "`model.llm.layers.2.mlp.experts.w2_weight` of `FOLDER/model.safetensors` has the shape "
        "[7, 20, 40], config.json says [7, 40, 20]; other shapes differ, too: "
        "`model.llm.unembed.weight`",
    )


def test_names_of_other_quantisations_are_refused(edited: Callable[[Edit], Path]) -> None:
    name = "model.llm.layers.0.attn.wq_du.qweight"
    assert_refused(
        edited(lambda tensors: tensors.update({name: torch.zeros(1, dtype=torch.int32)})),
        f"`FOLDER` holds tensors in a quantisation that is not supported (int4): `{name}: I32`",
        "use the checkpoint in BF16, or one with routed experts in NVFP4",
    )


def test_a_folder_of_something_else_is_refused(edited: Callable[[Edit], Path]) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors.clear()
        tensors["base_model.model.lm_head.lora_A.weight"] = torch.zeros(2, 2)

    assert_refused(
        edited(change),
        "`FOLDER` holds no Inkling text model: no tensor name begins with `model.llm.layers.` or "
        "`model.language_model.layers.` or `model.layers.`, there are "
        "`base_model.model.lm_head.lora_A.weight`",
    )


def test_a_tensor_in_two_files_is_refused(raw_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(raw_folder, tmp_path, dirs_exist_ok=True)
    norm = {"model.llm.norm.weight": torch.zeros(40)}
    save_file(norm, tmp_path / "second.safetensors")
    assert_refused(
        tmp_path,
        "tensor `model.llm.norm.weight` is in `FOLDER/model.safetensors` and in "
        "`FOLDER/second.safetensors`, expected it once",
    )


def split(raw_folder: Path, folder: Path) -> dict[str, str]:
    """Write a checkpoint in two shards with an index, and return the index."""
    shutil.copy(raw_folder / "config.json", folder)
    tensors = load_file(raw_folder / "model.safetensors")
    names = sorted(tensors)
    shards = {"a.safetensors": names[0::2], "b.safetensors": names[1::2]}
    for file, held in shards.items():
        save_file({name: tensors[name] for name in held}, folder / file)
    weight_map = {name: file for file, held in shards.items() for name in held}
    write_index(folder, weight_map)
    return weight_map


def write_index(folder: Path, weight_map: dict[str, str]) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))


def test_shards_give_the_same_parameters(raw_folder: Path, tmp_path: Path) -> None:
    split(raw_folder, tmp_path)
    save_file({"not in the index": torch.zeros(1)}, tmp_path / "c.safetensors")
    want, got = load(raw_folder).weights, load(tmp_path).weights
    assert all(torch.equal(got[name], want[name]) for name in want)


def test_an_index_that_names_a_missing_file_is_refused(raw_folder: Path, tmp_path: Path) -> None:
    split(raw_folder, tmp_path)
    (tmp_path / "b.safetensors").unlink()
    assert_refused(
        tmp_path,
        "`FOLDER/model.safetensors.index.json` names files that are not there: `b.safetensors`",
    )


def test_a_tensor_that_is_not_in_the_shard_of_the_index_is_named_with_it(
    raw_folder: Path, tmp_path: Path
) -> None:
    weight_map = split(raw_folder, tmp_path)
    tensors = load_file(tmp_path / "b.safetensors")
    name = next(name for name in tensors if name.startswith("model.llm."))
    del tensors[name]
    save_file(tensors, tmp_path / "b.safetensors")
    assert weight_map[name] == "b.safetensors"
    assert_refused(
        tmp_path,
        f"`FOLDER` lacks tensors of the raw layout: `{name}`",
        "the index has them in `b.safetensors`: fetch it again",
    )


def test_a_shard_that_was_cut_is_refused(raw_folder: Path, tmp_path: Path) -> None:
    split(raw_folder, tmp_path)
    path = tmp_path / "b.safetensors"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 100)
    assert_refused(
        tmp_path,
        f"`FOLDER/b.safetensors` has {size - 100} bytes, its header describes {size}",
        "the file was cut; fetch it again",
    )


@pytest.mark.parametrize("place", ["text_config", None], ids=["text", "top"])
@pytest.mark.parametrize(
    ("key", "value", "spelled", "expected"),
    [
        ("gate_activation", "softmax", "softmax", "`sigmoid`"),
        ("norm_after_topk", False, "false", "`true`"),
        ("shared_expert_sink", False, "false", "`true`"),
        ("q_bias", True, "true", "`false`"),
        ("o_bias", True, "true", "`false`"),
        ("tie_word_embeddings", True, "true", "`false`"),
        ("final_logit_softcapping", 30.0, "30.0", "no value"),
        ("use_embed_norm", False, "false", "`true`"),
        ("use_sconv", False, "false", "`true`"),
        ("use_global_scale", False, "false", "`true`"),
        ("use_gate_bias", False, "false", "`true`"),
        ("hidden_act", "gelu", "gelu", "`silu`"),
    ],
)
def test_config_switches_that_change_the_computation_are_refused_by_name(
    raw_folder: Path,
    tmp_path: Path,
    place: str | None,
    key: str,
    value: object,
    spelled: str,
    expected: str,
) -> None:
    config = json.loads((raw_folder / "config.json").read_text())
    (config[place] if place else config)[key] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InklingError) as caught:
        LLM(tmp_path, device="cpu")
    assert caught.value.message == (
        f"the model's config has {key} `{spelled}`, which is not supported; expected {expected}"
    )


def test_config_switches_at_the_values_that_are_implemented_are_accepted(
    edited: Callable[[Edit], Path],
) -> None:
    folder = edited(lambda tensors: None)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"] |= {
        "gate_activation": "sigmoid",
        "norm_after_topk": True,
        "q_bias": False,
        "use_sconv": True,
        "final_logit_softcapping": None,
    }
    (folder / "config.json").write_text(json.dumps(config))
    assert LLM(folder, device="cpu").logits([1]).isfinite().all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num_experts_per_tok": 8},
            "the model's config selects 8 experts per token of 7, expected at most all",
        ),
        (
            {"num_attention_heads": 5},
            "layer 1 has 5 query heads, expected a multiple of its 2 key heads",
        ),
    ],
    ids=["experts", "heads"],
)
def test_configs_that_cannot_be_are_refused(changes: dict[str, int], message: str) -> None:
    spec = parse_model_spec({"model_type": "inkling_text", **TEXT, **changes})
    with pytest.raises(InklingError) as caught:
        require_supported(spec, spec.config)
    assert caught.value.message == message
