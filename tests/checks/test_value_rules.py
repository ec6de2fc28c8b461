"""What the rules over numbers say, and that they are silent on ordinary adapters."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from checks.value_cases import Q1, VALUE_CASES, W1_B
from factories import TORCH_DTYPES, raw_config, write_released_adapter
from inkling_cli.checks.adapter import ADAPTER_RULES, Consumer, check_adapter, read_subject
from inkling_runtime.adapter.model_spec import parse_model_spec
from inkling_runtime.adapter.values.read import read_values

SPEC = parse_model_spec(raw_config())


def findings(folder, family="VAL"):
    subject = read_subject(folder, SPEC)
    subject = replace(subject, values=read_values(subject.adapter, subject.pairs))
    found = check_adapter(subject, [Consumer.NATIVE])
    return [finding for finding in found if finding.code.startswith(family)]


def kaiming_a(shape, dtype, rng):
    """Return A as PEFT starts it."""
    bound = 1 / math.sqrt(shape[-1])
    return torch.from_numpy(rng.uniform(-bound, bound, shape)).to(TORCH_DTYPES[dtype])


def shrink_b(size, rng):
    """Make B normal with a standard deviation that differs by layer, as training does."""

    def edit(tensors):
        for name, tensor in tensors.items():
            if name.endswith("lora_B.weight"):
                spread = size * float(rng.lognormal(0, 1))
                tensors[name] = torch.from_numpy(rng.normal(0, spread, tensor.shape)).to(
                    tensor.dtype
                )

    return edit


@pytest.mark.parametrize("code", sorted(VALUE_CASES))
def test_one_defect_gives_exactly_its_code(tmp_path, code):
    folder = write_released_adapter(tmp_path / "a", **VALUE_CASES[code])
    assert [finding.code for finding in findings(folder, "")] == [code]


def test_every_rule_of_the_family_has_a_case():
    assert {code for code in ADAPTER_RULES.rules if code.startswith("VAL")} == set(VALUE_CASES)


@pytest.mark.parametrize("code", sorted(VALUE_CASES))
def test_rules_are_silent_where_no_number_was_read(tmp_path, code):
    folder = write_released_adapter(tmp_path / "a", **VALUE_CASES[code])
    assert not check_adapter(read_subject(folder, SPEC), [Consumer.NATIVE])


@pytest.mark.parametrize("size", [1e-6, 1e-3, 0.02, 1.0])
@pytest.mark.parametrize("per_expert", [False, True])
def test_ordinary_adapters_give_nothing(tmp_path, size, per_expert):
    rng = np.random.default_rng(int(1 / size))
    folder = write_released_adapter(
        tmp_path / "a", rank=4, per_expert=per_expert, fill=kaiming_a, edit=shrink_b(size, rng)
    )
    assert findings(folder, "") == []


def test_nan_and_inf_are_counted_by_tensor(tmp_path):
    folder = write_released_adapter(tmp_path / "a", **VALUE_CASES["VAL001"])
    (finding,) = findings(folder)
    assert finding.message.startswith(f"`{W1_B}` holds 1 NaN and 1 Inf among 110 elements")
    assert finding.severity == "error"


def test_no_effect_is_said_to_be_valid(tmp_path):
    folder = write_released_adapter(tmp_path / "a", **VALUE_CASES["VAL002"])
    (finding,) = findings(folder)
    assert "lora_B is zero" in finding.message
    assert "valid" in finding.message
    assert finding.severity == "info"


def test_the_share_of_zero_experts_is_said(tmp_path):
    def edit(tensors):
        tensors[W1_B][[0, 3]] = 0

    (finding,) = findings(write_released_adapter(tmp_path / "a", edit=edit))
    assert finding.code == "VAL003"
    assert finding.message.startswith("2 of 45 expert matrices")


def test_alpha_of_zero_is_no_matter_of_the_numbers(tmp_path):
    folder = write_released_adapter(tmp_path / "a", alpha=0)
    assert findings(folder) == []


def test_an_absurd_norm_is_compared_with_its_kind(tmp_path):
    folder = write_released_adapter(tmp_path / "a", **VALUE_CASES["VAL005"])
    (finding,) = findings(folder)
    assert finding.location.key == "layers.1.attn.wq_du"


def test_an_absurd_norm_is_told_without_others_of_its_kind(tmp_path):
    folder = write_released_adapter(tmp_path / "a", groups=["head"], alpha=1e6)
    (finding,) = findings(folder)
    assert finding.code == "VAL005"
    assert "weights are around 0.02" in finding.message


def test_dtypes_are_counted(tmp_path):
    folder = write_released_adapter(tmp_path / "a", **VALUE_CASES["VAL006"])
    (finding,) = findings(folder)
    assert finding.message.endswith("81 BF16, 1 F32")


def test_a_factor_that_is_unsound_already_is_not_named_again(tmp_path):
    def edit(tensors):
        name = f"{Q1}.lora_B.weight"
        tensors[name] = tensors[name].to(torch.int8)

    folder = write_released_adapter(tmp_path / "a", edit=edit)
    assert findings(folder) == []
    assert [finding.code for finding in findings(folder, "ADP")] == ["ADP004"]
