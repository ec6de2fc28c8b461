"""config.json of the base model: two spellings with the same meaning, and what is refused."""

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from factories import (
    INKLING,
    INKLING_SMALL,
    TINY,
    Sizes,
    raw_config,
    transformers_config,
    write_json,
    write_model,
)
from inkling_runtime.adapter.model_spec import ModelSpec, parse_model_spec, read_model_spec
from inkling_runtime.errors import InklingError


def shapes_of(sizes: Sizes) -> dict[str, tuple[int, int, int]]:
    """Return what the published table says of every site: in, out, experts."""
    H, shapes = sizes.hidden, {}
    for i in range(sizes.layers):
        attention = {
            "wq_du": (H, sizes.query, 0),
            "wk_dv": (H, sizes.key(i), 0),
            "wv_dv": (H, sizes.key(i), 0),
            "wr_du": (H, sizes.rel, 0),
            "wo_ud": (sizes.query, H, 0),
        }
        shapes |= {f"layers.{i}.attn.{name}": shape for name, shape in attention.items()}
        mlp = f"layers.{i}.mlp."
        if i < sizes.num_dense:
            shapes[f"{mlp}gate"] = shapes[f"{mlp}up"] = (H, sizes.dense, 0)
            shapes[f"{mlp}down"] = (sizes.dense, H, 0)
            continue
        for holder, experts in (("experts", sizes.experts), ("shared_experts", sizes.shared)):
            inner = (H, sizes.inner, experts)
            shapes[f"{mlp}{holder}.w1"] = shapes[f"{mlp}{holder}.w3"] = inner
            shapes[f"{mlp}{holder}.w2"] = (sizes.inner, H, experts)
    return shapes | {"lm_head": (H, sizes.unpadded, 0)}


def sites_of(spec: ModelSpec) -> dict[str, tuple[int, int, int]]:
    return {
        str(site): (shape.in_features, shape.out_features, shape.experts)
        for site, shape in spec.sites().items()
    }


@pytest.mark.parametrize("sizes", [TINY, INKLING_SMALL, INKLING], ids=["tiny", "small", "inkling"])
@pytest.mark.parametrize("spell", [raw_config, transformers_config])
def test_both_spellings_give_every_site_its_widths(sizes: Sizes, spell: Any) -> None:
    spec = parse_model_spec(spell(sizes))
    assert sites_of(spec) == shapes_of(sizes)
    assert (spec.dense_width, spec.expert_width) == (sizes.dense, sizes.inner)
    assert [layer.index for layer in spec.layers if layer.is_sliding] == list(sizes.local)


def test_both_spellings_agree_on_everything_else() -> None:
    raw, hf = parse_model_spec(raw_config()), parse_model_spec(transformers_config())
    for name in ("hidden_size", "layers", "vocab_size", "unpadded_vocab_size", "mup_multiplier"):
        assert getattr(raw, name) == getattr(hf, name)
    for name in ("conv_kernel_size", "max_positions", "route_scale", "num_experts_per_token"):
        assert getattr(raw, name) == getattr(hf, name)
    assert raw.is_multimodal
    assert not hf.is_multimodal


def test_transformers_itself_reads_the_widths_in_the_same_way() -> None:
    from transformers import InklingConfig, InklingTextConfig

    for spell in (raw_config, transformers_config):
        values = spell()
        text = values.get("text_config", values) | {"model_type": "inkling_text"}
        spec = parse_model_spec(values)
        config = InklingTextConfig(**text)
        assert (config.intermediate_size, config.moe_intermediate_size) == (
            spec.dense_width,
            spec.expert_width,
        )
        sliding = [kind == "hybrid_sliding" for kind in config.layer_types]
        assert sliding == [layer.is_sliding for layer in spec.layers]
        dense = [kind == "dense" for kind in config.mlp_layer_types]
        assert dense == [layer.is_dense for layer in spec.layers]
    saved = InklingConfig(text_config=transformers_config()).to_dict()
    assert sites_of(parse_model_spec(saved)) == shapes_of(TINY)


def test_a_transformers_width_under_the_raw_name_is_the_dense_one() -> None:
    values = transformers_config()
    spec = parse_model_spec(values)
    assert spec.dense_width == values["intermediate_size"] == TINY.dense
    trap = values | {"dense_intermediate_size": 99}
    spec = parse_model_spec(trap)
    assert (spec.dense_width, spec.expert_width) == (99, TINY.dense)


def test_defaults_are_those_of_the_released_models() -> None:
    values = transformers_config(INKLING_SMALL)
    for name in ("layer_types", "d_rel", "rel_extent", "sliding_window_size"):
        del values[name]
    spec = parse_model_spec(values)
    assert [layer.index for layer in spec.layers if not layer.is_sliding] == list(range(5, 42, 6))
    assert (spec.d_rel, spec.sliding_window) == (16, 512)
    assert {layer.rel_extent for layer in spec.layers} == {512, 1024}


def test_sliding_layers_beyond_the_last_are_ignored() -> None:
    spec = parse_model_spec(raw_config(local_layer_ids=[0, 2, 40]))
    assert spec.layers == parse_model_spec(raw_config()).layers


def test_a_folder_and_its_config_are_the_same_model(tmp_path: Path) -> None:
    write_model(tmp_path, raw_config())
    assert read_model_spec(tmp_path) == read_model_spec(tmp_path / "config.json")


def text_with(**changes: Any) -> dict[str, Any]:
    """Return the raw config with changes in the text part; `...` drops a key."""
    config = raw_config(**changes)
    text = config["text_config"]
    config["text_config"] = {key: value for key, value in text.items() if value is not ...}
    return config


DEFECTS: dict[str, tuple[dict[str, Any], str]] = {
    "no model type": ({}, "has the model_type `None`, expected one of `inkling_mm_model`"),
    "another model": ({"model_type": "llama"}, "has the model_type `llama`, expected one of"),
    "a list as type": ({"model_type": ["inkling_text"]}, "has the model_type"),
    "inkling2": ({"model_type": "inkling2"}, "a `inkling2` model, which is not supported yet"),
    "inkling2_text": ({"model_type": "inkling2_text"}, "which is not supported yet"),
    "inkling2_loop": ({"model_type": "inkling2_loop"}, "which is not supported yet"),
    "no text config": ({"model_type": "inkling_mm_model"}, "has no `text_config` object"),
    "text config null": (raw_config() | {"text_config": None}, "has no `text_config` object"),
    "text config a list": (raw_config() | {"text_config": []}, "has no `text_config` object"),
    "no hidden size": (text_with(hidden_size=...), "has no `hidden_size`"),
    "no layers": (text_with(num_hidden_layers=...), "has no `num_hidden_layers`"),
    "no heads": (text_with(num_attention_heads=...), "has no `num_attention_heads`"),
    "no vocabulary": (text_with(vocab_size=...), "has no `vocab_size`"),
    "no expert width": (text_with(intermediate_size=...), "has no `intermediate_size`"),
    "no widths": (
        text_with(intermediate_size=..., dense_intermediate_size=...),
        "has no `intermediate_size`",
    ),
    "size a string": (text_with(hidden_size="40"), "has hidden_size '40', expected a positive"),
    "size true": (text_with(hidden_size=True), "has hidden_size True, expected a positive"),
    "size a float": (text_with(hidden_size=40.0), "has hidden_size 40.0, expected a positive"),
    "size zero": (text_with(n_routed_experts=0), "has n_routed_experts 0, expected a positive"),
    "size negative": (text_with(head_dim=-1), "has head_dim -1, expected a positive integer"),
    "scale a string": (text_with(route_scale="8"), "has route_scale '8', expected a positive num"),
    "scale zero": (text_with(route_scale=0), "has route_scale 0, expected a positive number"),
    "scale huge": (text_with(route_scale=10**400), "has route_scale 1"),
    "mup true": (text_with(logits_mup_width_multiplier=True), "has logits_mup_width_multiplier"),
    "local layers text": (text_with(local_layer_ids="0"), "has local_layer_ids '0', expected"),
    "local layers floats": (text_with(local_layer_ids=[0.5]), "has local_layer_ids [0.5], exp"),
    "local layers truth": (text_with(local_layer_ids=[True]), "has local_layer_ids [True], exp"),
    "dense count text": (text_with(dense_mlp_idx="1"), "has dense_mlp_idx '1', expected a count"),
    "dense count negative": (text_with(dense_mlp_idx=-1), "has dense_mlp_idx -1, expected a co"),
    "layer types short": (text_with(layer_types=["hybrid"]), "has a `layer_types` that is not 4"),
    "layer types unknown": (text_with(layer_types=["full"] * 4), "has a `layer_types` that is no"),
    "layer types of lists": (text_with(layer_types=[[]] * 4), "has a `layer_types` that is not 4"),
    "layer types text": (text_with(layer_types="hybrid"), "has a `layer_types` that is not 4"),
    "mlp types long": (text_with(mlp_layer_types=["dense"] * 5), "a `mlp_layer_types` that is n"),
    "more rows than padded": (text_with(unpadded_vocab_size=0), "has unpadded_vocab_size 0"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_config_that_says_no_size_is_refused(tmp_path: Path, name: str) -> None:
    config, message = DEFECTS[name]
    path = write_json(tmp_path / "config.json", config)
    with pytest.raises(InklingError) as caught:
        read_model_spec(tmp_path)
    assert message in caught.value.message
    assert str(path) in caught.value.message


def test_a_missing_or_broken_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InklingError, match="does not exist"):
        read_model_spec(tmp_path)
    with pytest.raises(InklingError, match="does not exist"):
        read_model_spec(tmp_path / "absent")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InklingError, match="is not the JSON object it should be"):
        read_model_spec(tmp_path)
    with pytest.raises(InklingError):
        read_model_spec(tmp_path / ("x" * 300))


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from pathlib import Path
from inkling_runtime.adapter.model_spec import read_model_spec
from inkling_runtime.errors import InklingError
try:
    read_model_spec(Path(sys.argv[1]))
except InklingError:
    pass
print("alive")
"""


@pytest.mark.parametrize("key", ["num_hidden_layers", "dense_mlp_idx"])
def test_a_huge_count_of_layers_costs_neither_memory_nor_time(tmp_path: Path, key: str) -> None:
    write_model(tmp_path, raw_config(**{key: 10**12, "local_layer_ids": []}))
    result = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (3, 3)),
    )
    assert result.stdout == "alive\n", result.stderr[-300:]
