"""adapter_config.json: what decides the effect is typed, everything else is kept."""

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peft.utils.other import get_pattern_key

from factories import released_adapter_config, write_json
from inkling_runtime.adapter.lora_config import (
    beyond_plain_lora,
    parse_lora_config,
    read_lora_config,
)
from inkling_runtime.adapter.pattern_table import PatternTable
from inkling_runtime.errors import InklingError

DEFECTS: dict[str, tuple[dict[str, Any], str]] = {
    "r missing": ({"r": None}, "has no r, expected a positive integer"),
    "r zero": ({"r": 0}, "has r 0, expected a positive integer"),
    "r negative": ({"r": -1}, "has r -1, expected a positive integer"),
    "r true": ({"r": True}, "has r True, expected a positive integer"),
    "r a string": ({"r": "8"}, "has r '8', expected a positive integer"),
    "r a float": ({"r": 8.0}, "has r 8.0, expected a positive integer"),
    "r a list": ({"r": [8]}, "has r [8], expected a positive integer"),
    "r beyond any tensor": ({"r": 10**400}, "has r 1"),
    "alpha missing": ({"lora_alpha": None}, "has no lora_alpha, expected a finite number"),
    "alpha a string": ({"lora_alpha": "16"}, "has lora_alpha '16', expected a finite number"),
    "alpha true": ({"lora_alpha": True}, "has lora_alpha True, expected a finite number"),
    "alpha above any float": ({"lora_alpha": 10**400}, "expected a finite number"),
    "rsLoRA not a truth value": ({"use_rslora": 1}, "has use_rslora 1, expected true or false"),
    "rank_pattern a list": ({"rank_pattern": ["q"]}, "has a rank_pattern that is not an object"),
    "rank_pattern a string": ({"rank_pattern": "q"}, "has a rank_pattern that is not an object"),
    "rank 0 in a pattern": ({"rank_pattern": {"q": 0}}, "not an object of positive integers"),
    "rank true in a pattern": ({"rank_pattern": {"q": True}}, "an object of positive integers"),
    "rank 8.0 in a pattern": ({"rank_pattern": {"q": 8.0}}, "an object of positive integers"),
    "huge rank in a pattern": ({"rank_pattern": {"q": 10**400}}, "an object of positive integers"),
    "alpha text in a pattern": ({"alpha_pattern": {"q": "1"}}, "is not an object of numbers"),
    "alpha null in a pattern": ({"alpha_pattern": {"q": None}}, "is not an object of numbers"),
    "huge alpha in a pattern": ({"alpha_pattern": {"q": 10**400}}, "not an object of numbers"),
    "rank_pattern bad regex": ({"rank_pattern": {"q(": 4}}, "has the rank_pattern key `q(`"),
    "alpha_pattern bad regex": ({"alpha_pattern": {"*q": 4}}, "has the alpha_pattern key `*q`"),
    "regex that is whole only by halves": (
        {"rank_pattern": {"a)(b": 4}},
        "has the rank_pattern key `a)(b`",
    ),
    "regex with a flag inside": (
        {"rank_pattern": {"(?i)WQ_DU": 4}},
        "has the rank_pattern key `(?i)WQ_DU`",
    ),
    "targets a number": ({"target_modules": 3}, "has target_modules 3, expected a list of names"),
    "targets an object": ({"target_modules": {"q": 1}}, "expected a list of names"),
    "targets of numbers": ({"target_modules": [1]}, "has target_modules [1], expected a list"),
    "parameters a string": ({"target_parameters": "x"}, "has target_parameters 'x', expected a"),
}


def config_with(changes: dict[str, Any]) -> dict[str, Any]:
    values = released_adapter_config() | changes
    return {key: value for key, value in values.items() if value is not None}


def scaling_in(folder: Path, module: str) -> float:
    return read_lora_config(folder).scaling_of(module)


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_that_would_change_the_effect_is_refused(tmp_path: Path, name: str) -> None:
    changes, message = DEFECTS[name]
    write_json(tmp_path / "adapter_config.json", config_with(changes))
    with pytest.raises(InklingError) as caught:
        scaling_in(tmp_path, "language_model.layers.0.attn.wq_du")
    assert message in caught.value.message
    assert "adapter_config.json" in caught.value.message


def test_a_missing_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InklingError, match=r"adapter_config.json` does not exist"):
        read_lora_config(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_alpha_that_is_no_number_is_refused(tmp_path: Path, value: float) -> None:
    write_json(tmp_path / "adapter_config.json", released_adapter_config() | {"lora_alpha": value})
    with pytest.raises(InklingError, match="is not a JSON number"):
        read_lora_config(tmp_path)


def test_null_means_absent() -> None:
    names = ("use_rslora", "rank_pattern", "alpha_pattern", "target_modules", "target_parameters")
    config = parse_lora_config(released_adapter_config() | dict.fromkeys(names))
    assert config.rank_of("any") == 2
    assert config.scaling_of("any") == 4.0
    assert config.target_modules is None
    assert config.target_parameters == ()


@pytest.mark.parametrize(
    ("changes", "name", "expected"),
    [
        ({}, "x.wq_du", 4.0),
        ({"lora_alpha": 0}, "x.wq_du", 0.0),
        ({"lora_alpha": -8}, "x.wq_du", -4.0),
        ({"use_rslora": True, "r": 4}, "x.wq_du", 4.0),
        ({"rank_pattern": {"wq_du": 8}}, "x.wq_du", 1.0),
        ({"rank_pattern": {"wq_du": 8}}, "x.wk_dv", 4.0),
        ({"alpha_pattern": {"wq_du": 1}}, "x.wq_du", 0.5),
        ({"alpha_pattern": {"wq_du": 1}, "rank_pattern": {"x.*": 16}}, "x.wq_du", 1 / 16),
        ({"alpha_pattern": {".*": 1, "wq_du": 6}}, "x.wq_du", 0.5),
        ({"alpha_pattern": {"wq_du": 6, ".*": 1}}, "x.wq_du", 3.0),
    ],
)
def test_scaling_is_that_of_peft(changes: dict, name: str, expected: float) -> None:
    config = parse_lora_config(released_adapter_config() | changes)
    assert config.scaling_of(name) == expected
    assert config.scaling_of("base_model.model." + name) == expected


@pytest.mark.parametrize(
    "setting",
    [
        {"use_dora": True},
        {"lora_bias": True},
        {"bias": "all"},
        {"bias": "lora_only"},
        {"fan_in_fan_out": True},
        {"modules_to_save": ["lm_head"]},
        {"trainable_token_indices": [1, 2]},
        {"alora_invocation_tokens": [1]},
        {"layer_replication": [[0, 4]]},
        {"use_bdlora": {"nblocks": 2}},
        {"use_qalora": True},
        {"init_lora_weights": "pissa"},
        {"init_lora_weights": "pissa_niter_16"},
        {"init_lora_weights": "olora"},
        {"init_lora_weights": "corda"},
        {"init_lora_weights": "loftq"},
        {"peft_type": "IA3"},
    ],
    ids=lambda setting: " ".join(map(str, *setting.items())),
)
def test_settings_that_make_more_than_plain_lora_are_named(setting: dict) -> None:
    config = parse_lora_config(released_adapter_config() | setting)
    ((key, _),) = setting.items()
    assert any(key in text for text in beyond_plain_lora(config))


def test_a_config_that_peft_saves_is_plain() -> None:
    plain = {
        "use_dora": False,
        "lora_bias": False,
        "bias": "none",
        "fan_in_fan_out": False,
        "modules_to_save": None,
        "trainable_token_indices": None,
        "alora_invocation_tokens": None,
        "layer_replication": None,
        "use_bdlora": None,
        "use_qalora": False,
        "init_lora_weights": True,
        "loftq_config": {},
        "peft_type": "LORA",
    }
    assert beyond_plain_lora(parse_lora_config(released_adapter_config() | plain)) == ()
    assert beyond_plain_lora(parse_lora_config(released_adapter_config())) == ()
    gaussian = released_adapter_config() | {"init_lora_weights": "gaussian"}
    assert beyond_plain_lora(parse_lora_config(gaussian)) == ()


PIECES = ["layers", "1", "11", "attn", "wq_du", "mlp", "experts", "down_proj", "gate_up_proj"]
WORDS = [*PIECES, r"\d+", ".*", "[a-z]+", "wq|wk", "(a)(b)", "x?", r"\.", "$", "^"]
NAMES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map(".".join)
KEYS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(".".join)


@given(name=NAMES, keys=st.lists(KEYS, max_size=4, unique=True))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_patterns_match_as_peft_matches_them(name: str, keys: list[str]) -> None:
    found = PatternTable(dict.fromkeys(keys, 1)).find_key(name)
    assert (name if found is None else found) == get_pattern_key(keys, name)


def test_thousands_of_pattern_keys_are_matched_in_seconds() -> None:
    names = [f"language_model.layers.{i}.attn.wq_du" for i in range(800)]
    config = parse_lora_config(
        released_adapter_config() | {"rank_pattern": dict.fromkeys(names, 3)}
    )
    start = time.process_time()
    for name in names[::4]:
        assert config.rank_of(name) == 3
    assert time.process_time() - start < 1.5
