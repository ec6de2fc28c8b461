"""One injected defect gives exactly that rule's code; sound adapters give none."""

import pytest

from checks.adapter_cases import (
    COUNTED,
    INJECTED,
    SPEC,
    convert,
    find,
    write_case,
)
from checks.broken_folders import BROKEN_FOLDERS
from checks.peft_rule_cases import PEFT_CASES
from factories import (
    INKLING_SMALL,
    raw_config,
    released_adapter_config,
    released_modules,
    write_model,
    write_released_adapter,
    write_sparse_adapter,
)
from inkling_cli.checks.adapter import (
    ADAPTER_RULES,
    Consumer,
    check_adapter,
    make_subject,
    read_subject,
)
from inkling_cli.checks.adapter.files import FOLDER_RULES
from inkling_cli.checks.adapter.folder import read_folder
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.verdicts.judging import judge_adapter
from inkling_cli.checks.verdicts.question import Load, make_question
from inkling_cli.checks.verdicts.verdict import Outcome


def codes(folder, *consumers, spec=SPEC, values=False):
    found = find(folder, *consumers, spec=spec, values=values)
    return sorted({finding.code for finding in found})


@pytest.mark.parametrize("code", sorted({*INJECTED, *BROKEN_FOLDERS}))
def test_one_defect_gives_exactly_its_code(tmp_path, code):
    folder, consumer = write_case(code, tmp_path)
    assert codes(folder, consumer) == [code]


@pytest.mark.parametrize("code", sorted(COUNTED))
def test_one_defect_of_the_numbers_gives_exactly_its_code(tmp_path, code):
    folder, consumer = write_case(code, tmp_path)
    assert codes(folder, consumer) == []
    assert codes(folder, consumer, values=True) == [code]


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
    folder = write_released_adapter(tmp_path / "a", **INJECTED["ADP007"])
    assert codes(folder, Consumer.NATIVE, spec=None) == []


@pytest.mark.parametrize("code", sorted({*INJECTED, *BROKEN_FOLDERS} - {"ADP012"}))
def test_the_runtime_applies_all_but_what_an_error_is_told_of(tmp_path, code):
    path, consumer = write_case(code, tmp_path)
    model = write_model(tmp_path / "model", raw_config())
    question = make_question(
        consumers=[consumer], version=None, model=model, words=(), file=None, load=Load.STARTUP
    )
    folder = read_folder(path)
    subject = None if folder.adapter is None else make_subject(folder.adapter, question.spec)
    judgement = judge_adapter(folder, subject, question)
    has_error = any(finding.severity is Severity.ERROR for finding in judgement.findings)
    (verdict,) = judgement.verdicts
    assert (verdict.outcome is not Outcome.APPLIED) == has_error


def test_every_rule_has_a_case():
    assert set(ADAPTER_RULES.rules) == {*INJECTED, *COUNTED, *PEFT_CASES}
    assert set(FOLDER_RULES.rules) == set(BROKEN_FOLDERS)


def test_the_model_is_read_from_a_folder_or_a_file(tmp_path):
    from inkling_runtime.adapter.model_spec import read_model_spec

    folder = write_model(tmp_path / "m", raw_config())
    assert read_model_spec(folder).sites() == read_model_spec(folder / "config.json").sites()
