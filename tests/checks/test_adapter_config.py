"""What a config says that was read: scales of zero and below, patterns, more than plain LoRA."""

import pytest

from checks.adapter_cases import convert, find
from factories import write_released_adapter
from inkling_cli.checks.adapter import Consumer
from inkling_cli.checks.finding import Severity


def found(folder, **config):
    return find(write_released_adapter(folder / "a", config=config), Consumer.NATIVE)


def only(folder, **config):
    (finding,) = found(folder, **config)
    return finding


def test_an_alpha_of_zero_leaves_no_effect(tmp_path):
    finding = only(tmp_path, lora_alpha=0)
    assert (finding.code, finding.severity) == ("ADP012", Severity.ERROR)
    assert finding.message == (
        "lora_alpha is 0: every module is scaled by 0, the adapter has no effect"
    )


def test_a_pattern_of_zero_concerns_its_modules(tmp_path):
    finding = only(tmp_path, alpha_pattern={"attn.wq_du": 0})
    assert (finding.code, finding.severity) == ("ADP012", Severity.WARNING)
    assert finding.message.startswith("alpha_pattern scales 4 of 41 modules by 0: ")


def test_an_alpha_of_zero_counts_where_no_pattern_does(tmp_path):
    finding = only(tmp_path, lora_alpha=0, alpha_pattern={"attn.wq_du": 8})
    assert finding.message.startswith("lora_alpha scales 37 of 41 modules by 0: ")


def test_a_pattern_may_zero_everything(tmp_path):
    finding = only(tmp_path, alpha_pattern={".*": 0})
    assert (finding.severity, finding.location.key) == (Severity.ERROR, "alpha_pattern")


@pytest.mark.parametrize(
    "config", [{"lora_alpha": -8}, {"alpha_pattern": {"attn.wq_du": -1}}], ids=["all", "some"]
)
def test_an_alpha_below_zero_is_told(tmp_path, config):
    finding = only(tmp_path, **config)
    assert (finding.code, finding.location.key) == ("ADP015", next(iter(config)))


@pytest.mark.parametrize(
    "keys",
    [
        {"attn.wq_du": 4},
        {r"layers\.1\..*": 4},
        {"layers.1.attn.wq_du": 4, "wq_du": 6},
        {"wq_du": 4, r".*wo_ud": 6},
    ],
)
def test_patterns_whose_order_does_not_matter_are_sound(tmp_path, keys):
    assert found(tmp_path, alpha_pattern=keys) == ()


def test_a_pattern_that_sorting_would_overrule_is_told_with_both_keys(tmp_path):
    finding = only(tmp_path, alpha_pattern={"wq_du": 4, "layers.1.attn.wq_du": 6})
    assert finding.code == "ADP014"
    assert "`language_model.layers.1.attn.wq_du` 4 by `wq_du` and 6 by `layers.1" in (
        finding.message
    )


def test_a_pattern_that_never_counts_is_told_with_the_one_before_it(tmp_path):
    finding = only(tmp_path, alpha_pattern={"attn.w.*": 4, "attn.wq_du": 6})
    assert finding.code == "ADP014"
    assert "4 by `attn.w.*` and 6 by `attn.wq_du`" in finding.message


def test_two_patterns_that_say_the_same_do_not_contradict(tmp_path):
    assert found(tmp_path, alpha_pattern={"attn.w.*": 4, "attn.wq_du": 4}) == ()


@pytest.mark.parametrize("setting", ["rank_pattern", "alpha_pattern"])
def test_keys_without_a_module_are_told_once(tmp_path, setting):
    finding = only(tmp_path, **{setting: {"q_proj": 4, "attn.wq": 6}})
    assert (finding.code, finding.location.key) == ("ADP013", setting)
    assert "`q_proj`, `attn.wq`, which match none of 41 modules" in finding.message


def test_a_key_behind_others_is_not_called_unmatched(tmp_path):
    keys = {"attn.w.*": 4, "attn.wq.*": 4, "attn.wq_d.*": 4, "attn.wq_du": 4}
    assert found(tmp_path, alpha_pattern=keys) == ()


@pytest.mark.parametrize("dialect", ["tinker", "vllm", "peft"])
def test_patterns_that_a_conversion_writes_are_sound(tmp_path, dialect):
    released = write_released_adapter(tmp_path / "a", config={"alpha_pattern": {"attn.wq_du": 4}})
    assert find(convert(released, dialect, tmp_path / "b"), Consumer.NATIVE) == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("use_dora", True),
        ("bias", "all"),
        ("bias", "lora_only"),
        ("lora_bias", True),
        ("modules_to_save", ["lm_head"]),
        ("trainable_token_indices", [5]),
        ("fan_in_fan_out", True),
        ("init_lora_weights", "pissa"),
        ("peft_type", "LOHA"),
    ],
)
def test_a_setting_beyond_plain_lora_is_named(tmp_path, key, value):
    finding = only(tmp_path, **{key: value})
    assert (finding.code, finding.location.key) == ("ADP008", key)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("use_dora", False),
        ("bias", "none"),
        ("modules_to_save", None),
        ("modules_to_save", []),
        ("trainable_token_indices", None),
        ("init_lora_weights", True),
        ("init_lora_weights", "gaussian"),
        ("lora_dropout", 0.1),
    ],
)
def test_a_setting_of_plain_lora_is_sound(tmp_path, key, value):
    assert found(tmp_path, **{key: value}) == ()
