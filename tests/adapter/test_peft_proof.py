"""PEFT itself loads what is written for it, on a base model without weights."""

import json
from pathlib import Path
from typing import Any

import pytest
from conversion import convert
from differences import normal

from factories import TINY, raw_config, transformers_config, write_model, write_released_adapter
from inkling_runtime.adapter.model_spec import read_model_spec
from inkling_runtime.errors import InklingError
from inkling_runtime.peft_proof import prove_in_peft

MODELS = {"text": transformers_config(TINY), "mm": raw_config(TINY)}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", MODELS[request.param])


def written(tmp_path: Path, model: Path, **changes: Any) -> Path:
    source = write_released_adapter(tmp_path / "source", **changes)
    convert(source, "peft", tmp_path / "out", read_model_spec(model))
    return tmp_path / "out"


def change_config(folder: Path, **values: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | values), "utf-8")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"per_expert": True},
        {"groups": {"routed"}},
        {"layers": [1, 3], "groups": {"attention", "shared"}},
        {"config": {"use_rslora": True, "alpha_pattern": {"w2": 3}}},
        {"config": {"task_type": "CAUSAL_LM"}},
        {"dtype": "F32", "fill": normal},
    ],
    ids=str,
)
def test_every_tensor_lands_in_its_place(
    tmp_path: Path, model: Path, changes: dict[str, Any]
) -> None:
    out = written(tmp_path, model, **changes)
    stored = json.loads((out / "conversion.json").read_text("utf-8"))["tensors"]
    assert prove_in_peft(out, model) == len(stored)
    assert prove_in_peft(out, model / "config.json") == len(stored)


def test_a_module_that_is_no_target_is_found(tmp_path: Path, model: Path) -> None:
    out = written(tmp_path, model)
    config = json.loads((out / "adapter_config.json").read_text("utf-8"))
    targets = [name for name in config["target_modules"] if name != "lm_head"]
    change_config(out, target_modules=targets)
    with pytest.raises(InklingError, match="2 tensors of the result have no place") as caught:
        prove_in_peft(out, model)
    assert "`base_model.model.lm_head.lora_A.weight`" in caught.value.message


def test_a_target_without_tensors_is_found(tmp_path: Path, model: Path) -> None:
    out = written(tmp_path, model, layers=[1], groups={"attention"})
    change_config(out, target_modules=["self_attn.q_proj"])
    with pytest.raises(InklingError, match="PEFT"):
        prove_in_peft(out, model)
    change_config(out, target_modules=["q_proj", "k_proj", "v_proj", "r_proj", "o_proj"])
    with pytest.raises(InklingError, match="parameters of PEFT's model get no tensor"):
        prove_in_peft(out, model)


def test_another_rank_is_refused_with_peft_s_words(tmp_path: Path, model: Path) -> None:
    out = written(tmp_path, model, groups={"attention"})
    change_config(out, r=3, rank_pattern={})
    with pytest.raises(InklingError, match=r"PEFT refuses the result.*: size mismatch for"):
        prove_in_peft(out, model)


def test_a_base_model_that_transformers_does_not_know_is_told(tmp_path: Path) -> None:
    out = written(tmp_path, write_model(tmp_path / "text", MODELS["text"]), groups={"attention"})
    raw = write_model(tmp_path / "raw", raw_config(TINY)["text_config"])
    with pytest.raises(InklingError, match=r"transformers makes no model .* `inkling_model`"):
        prove_in_peft(out, raw)


def test_a_model_of_another_size_is_refused(tmp_path: Path, model: Path) -> None:
    out = written(tmp_path, model, groups={"attention"})
    other = write_model(tmp_path / "other", MODELS["text"] | {"hidden_size": 48})
    with pytest.raises(InklingError, match="PEFT"):
        prove_in_peft(out, other)
