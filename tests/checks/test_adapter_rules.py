"""One injected defect gives exactly that rule's code; sound adapters give none."""

import pytest

from checks.adapter_cases import CONSUMED, INJECTED, SPEC, convert, write_case
from factories import (
    INKLING_SMALL,
    raw_config,
    released_adapter_config,
    released_modules,
    write_model,
    write_released_adapter,
    write_sparse_adapter,
)
from inkling_cli.checks.adapter import ADAPTER_RULES, Consumer, check_adapter, read_subject


def codes(folder, *consumers, spec=SPEC):
    found = check_adapter(read_subject(folder, spec), list(consumers))
    return sorted({finding.code for finding in found})


@pytest.mark.parametrize("code", sorted(INJECTED))
def test_one_defect_gives_exactly_its_code(tmp_path, code):
    folder = write_released_adapter(tmp_path / "a", **INJECTED[code])
    assert codes(folder, Consumer.NATIVE) == [code]


@pytest.mark.parametrize("head_rows", ["padded", "unpadded"])
def test_the_released_form_is_sound(tmp_path, head_rows):
    folder = write_released_adapter(tmp_path / "a", head_rows=head_rows)
    assert codes(folder, Consumer.NATIVE) == []


@pytest.mark.parametrize("groups", [["attention"], ["dense"], ["routed"], ["shared"], ["head"]])
def test_groups_may_be_absent(tmp_path, groups):
    folder = write_released_adapter(tmp_path / "a", groups=groups)
    assert codes(folder, Consumer.NATIVE) == []


@pytest.mark.parametrize("consumer", ["vllm", "sglang", "peft"])
@pytest.mark.parametrize("source", ["tinker", "vllm", "sglang", "peft"])
def test_a_converted_adapter_is_clean_for_its_consumer(tmp_path, source, consumer):
    released = write_released_adapter(tmp_path / "released")
    start = convert(released, source, tmp_path / "start")
    assert codes(convert(start, consumer, tmp_path / "out"), Consumer(consumer)) == []


def test_vllm_loses_the_two_silent_parts_of_the_released_form(tmp_path):
    folder = write_released_adapter(tmp_path / "a")
    findings = check_adapter(read_subject(folder, SPEC), [Consumer.VLLM])
    assert [finding.code for finding in findings] == ["VLA001", "VLA002"]
    dropped, misapplied = findings
    assert dropped.message.startswith("vLLM drops 9 of 41 modules")
    assert misapplied.message.startswith("vLLM misapplies 1 of 41 modules")
    assert f"inkling convert-adapter {folder} --to vllm -o OUT" == dropped.help
    assert dropped.engine_version == "0.33.0"


def test_sglang_loses_them_in_vllms_form(tmp_path):
    released = write_released_adapter(tmp_path / "a")
    assert codes(released, Consumer.SGLANG) == []
    folder = convert(released, "vllm", tmp_path / "v")
    assert codes(folder, Consumer.SGLANG) == ["SGA001", "SGA002", "SGA005"]


@pytest.mark.parametrize(
    "config",
    [
        {"use_rslora": True},
        {"alpha_pattern": {"attn.wq_du": 3}},
    ],
)
def test_sglang_ignores_other_scalings(tmp_path, config):
    folder = write_released_adapter(tmp_path / "a", config=config)
    assert codes(folder, Consumer.SGLANG) == ["SGA004"]
    assert codes(folder, Consumer.NATIVE) == []
    assert codes(convert(folder, "sglang", tmp_path / "s"), Consumer.SGLANG) == []


def test_names_of_peft_are_refused_by_the_engines(tmp_path):
    folder = convert(write_released_adapter(tmp_path / "a"), "peft", tmp_path / "p")
    assert codes(folder, Consumer.VLLM) == ["VLA003"]
    assert codes(folder, Consumer.SGLANG) == ["SGA003"]


def test_peft_matches_no_released_name(tmp_path):
    folder = write_released_adapter(tmp_path / "a")
    assert codes(folder, Consumer.PEFT) == ["PFA001"]


def test_an_adapter_of_another_size_is_named(tmp_path):
    folder = write_sparse_adapter(
        tmp_path / "small", released_modules(INKLING_SMALL), released_adapter_config(rank=2)
    )
    findings = check_adapter(read_subject(folder, SPEC), [Consumer.NATIVE])
    assert {finding.code for finding in findings} == {"ADP006", "ADP007"}
    assert {f.help for f in findings} == {"the adapter's widths are those of Inkling-Small"}


def test_what_concerns_all_consumers_stands_once(tmp_path):
    folder = write_released_adapter(tmp_path / "a", **INJECTED["ADP002"])
    found = check_adapter(read_subject(folder, SPEC), list(Consumer))
    assert [finding.code for finding in found].count("ADP002") == 1


def test_a_missing_expert_is_said(tmp_path):
    released = write_released_adapter(tmp_path / "a", groups=["routed"], per_expert=True)
    folder = convert(released, "vllm", tmp_path / "v")
    assert codes(folder, Consumer.VLLM) == []
    other = tmp_path / "other"
    other.mkdir()
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "adapter_model.safetensors")
    left = {name: t for name, t in tensors.items() if ".layers.2.mlp.experts.1." not in name}
    save_file(left, other / "adapter_model.safetensors")
    (other / "adapter_config.json").write_text((folder / "adapter_config.json").read_text())
    findings = check_adapter(read_subject(other, SPEC), [Consumer.VLLM])
    assert [finding.code for finding in findings] == ["ADP004"]
    assert "4 of 5 experts" in findings[0].message


def test_without_a_model_the_adapter_is_checked_alone(tmp_path):
    folder = write_released_adapter(tmp_path / "a", **INJECTED["ADP006"])
    assert codes(folder, Consumer.NATIVE, spec=None) == []


@pytest.mark.parametrize("code", sorted(CONSUMED))
def test_what_a_consumer_does_not_apply_gives_its_code(tmp_path, code):
    folder, consumer = write_case(code, tmp_path)
    assert code in codes(folder, consumer)


def test_every_rule_has_a_case():
    assert set(ADAPTER_RULES.rules) == {*INJECTED, *CONSUMED}


def test_the_model_is_read_from_a_folder_or_a_file(tmp_path):
    from inkling_runtime.adapter.model_spec import read_model_spec

    folder = write_model(tmp_path / "m", raw_config())
    assert read_model_spec(folder).sites() == read_model_spec(folder / "config.json").sites()
