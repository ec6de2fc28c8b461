"""`inkling diff`: exit codes, JSON, and what it says of adapters that differ or cannot be read."""

import json

import numpy as np
import pytest

from checks.adapter_cases import convert
from factories import TINY, Sizes, raw_config, write_model, write_released_adapter
from inkling_cli.main import main

W2 = "language_model.layers.2.mlp.experts.w2.lora_A.weight"
QUERY = "language_model.layers.1.attn.wq_du"


def spoil(tensors):
    tensors[W2][3, 1, 2] += 1
    tensors["language_model.layers.3.mlp.experts.w1.lora_B.weight"][4, 0, 0] = float("nan")
    for letter in "AB":
        del tensors[f"{QUERY}.lora_{letter}.weight"]


@pytest.fixture
def adapters(tmp_path, monkeypatch):
    """Run beside an adapter, copies of it in other dialects, and one that differs in three ways."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    write_model(tmp_path / "model", raw_config(TINY))
    source = write_released_adapter(tmp_path / "a")
    for dialect in ("vllm", "sglang", "peft"):
        convert(source, dialect, tmp_path / dialect)
    write_released_adapter(tmp_path / "b", edit=spoil, config={"revision": "main"})
    rslora = {"use_rslora": True, "alpha_pattern": {"w1": 3}}
    convert(write_released_adapter(tmp_path / "rs", config=rslora), "peft", tmp_path / "rs-peft")
    return tmp_path


def diff(*arguments):
    return main(["diff", *arguments])


def compared(capsys, *arguments):
    code = diff("--output-format", "json", *arguments)
    shown = capsys.readouterr()
    assert code in (0, 1), shown.err
    assert shown.err == ""
    return json.loads(shown.out)


def refused(capsys, *arguments):
    assert diff("--output-format", "json", *arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err


@pytest.mark.usefixtures("adapters")
class TestExitCodes:
    @pytest.mark.parametrize("other", ["a", "vllm", "sglang", "peft"])
    @pytest.mark.parametrize("output_format", ["full", "json"])
    def test_no_difference_is_0(self, other, output_format):
        assert diff("a", other, "--model", "model", "--output-format", output_format) == 0

    @pytest.mark.parametrize("output_format", ["full", "json"])
    def test_a_difference_is_1(self, output_format):
        assert diff("a", "b", "--output-format", output_format) == 1

    def test_the_tolerance_decides(self):
        rounded = ("rs", "rs-peft", "--model", "model")
        assert diff(*rounded) == diff(*rounded, "--tolerance", "0.0001") == 1
        assert diff(*rounded, "--tolerance", "0.01") == 0

    def test_no_tolerance_is_wide_enough_for_nan(self):
        assert diff("a", "b", "--tolerance", "1000000") == 1


@pytest.mark.usefixtures("adapters")
class TestRefusals:
    def test_no_such_folder(self, capsys):
        assert "`missing` does not exist" in refused(capsys, "a", "missing")

    def test_an_unsound_adapter_and_where_to_read_more(self, tmp_path, capsys):
        def drop(tensors):
            del tensors[f"{QUERY}.lora_B.weight"]

        write_released_adapter(tmp_path / "torn", edit=drop)
        message = refused(capsys, "a", "torn")
        assert f"module `{QUERY}` of `torn`: it has lora_A but no lora_B" in message
        assert "hint: " in message

    def test_adapters_for_models_of_other_sizes(self, tmp_path, capsys):
        write_released_adapter(tmp_path / "wide", Sizes(hidden=32))
        message = refused(capsys, "a", "wide")
        assert "maps 40 to 60 features in `a` and 32 to 60 features in `wide`" in message

    @pytest.mark.parametrize("tolerance", ["-1", "nan", "inf", "much"])
    def test_a_tolerance_that_is_no_distance(self, tolerance, capsys):
        assert "tolerance" in refused(capsys, "a", "b", "--tolerance", tolerance)


@pytest.mark.usefixtures("adapters")
class TestJson:
    def test_every_kind_of_difference(self, capsys):
        found = compared(capsys, "a", "b")
        assert (found["command"], found["status"]) == ("diff", "different")
        modules = {module["site"]: module for module in found["modules"]}
        assert found["num_modules"] == len(modules) == 42
        beyond = {site for site, module in modules.items() if module["beyond_tolerance"]}
        assert len(beyond) == found["num_beyond_tolerance"] == 3
        assert modules["layers.3.mlp.experts.w1"] == {
            "site": "layers.3.mlp.experts.w1",
            "in": "both",
            "fate": "not comparable",
            "equal": False,
            "distance": None,
            "relative": None,
            "norm": None,
            "cosine": None,
            "experts": {"total": 5, "apart": 1, "worst": 4},
            "beyond_tolerance": True,
        }
        missing = modules["layers.1.attn.wq_du"]
        assert (missing["in"], missing["relative"], missing["cosine"]) == ("first", 1.0, None)
        assert missing["distance"] == missing["norm"]["first"] > missing["norm"]["second"] == 0
        changed = modules["layers.2.mlp.experts.w2"]
        assert changed["experts"] == {"total": 5, "apart": 1, "worst": 3}
        norm = max(changed["norm"].values())
        assert changed["relative"] == pytest.approx(changed["distance"] / norm)
        assert found["names"] == {"num_common": 40, "only_first": [QUERY], "only_second": []}
        assert found["config"] == [
            {"key": "revision", "first": None, "second": "main", "decides_effect": False}
        ]

    def test_equal_is_said_with_distance_0(self, capsys):
        found = compared(capsys, "a", "peft", "--model", "model")
        assert (found["status"], found["num_beyond_tolerance"]) == ("same", 0)
        for module in found["modules"]:
            assert (module["equal"], module["distance"], module["relative"]) == (True, 0.0, 0.0)

    def test_both_adapters_are_described(self, capsys):
        found = compared(capsys, "rs", "rs-peft", "--model", "model")
        assert found["first"] == {
            "path": "rs",
            "dialect": "tinker",
            "rank": 2,
            "alpha": 8.0,
            "use_rslora": True,
            "dtypes": ["BF16"],
            "not_compared": [],
        }
        assert found["second"]["dialect"] == "peft"


@pytest.mark.usefixtures("adapters")
class TestText:
    def test_the_answer_stands_last(self, capsys):
        diff("a", "vllm")
        assert capsys.readouterr().out.endswith("No difference: 42 modules, every delta equal\n")
        diff("a", "b")
        assert capsys.readouterr().out.endswith("3 of 42 modules differ\n")
        diff("rs", "rs-peft", "--model", "model")
        shown = capsys.readouterr().out
        assert shown.endswith("3 of 42 modules differ, by no more than one rounding\n")
        diff("rs", "rs-peft", "--model", "model", "--tolerance", "0.01")
        assert capsys.readouterr().out.endswith("3 of them within the tolerance 0.01\n")

    def test_modules_are_listed_from_the_farthest(self, capsys):
        diff("a", "b")
        listed = capsys.readouterr().out.partition("what differs\n")[2].splitlines()[:3]
        assert [line.split()[0] for line in listed] == [
            "layers.3.mlp.experts.w1",
            "layers.1.attn.wq_du",
            "layers.2.mlp.experts.w2",
        ]
        assert listed[0].endswith("not comparable: NaN or infinity; 1 of 5 experts, 4 the first")
        assert "only in the first" in listed[1]
        assert listed[2].endswith("1 of 5 experts, 3 the most")

    def test_only_the_ten_that_differ_most_are_listed(self, tmp_path, capsys):
        write_released_adapter(tmp_path / "other", rng=np.random.default_rng(1))
        diff("a", "other")
        shown = capsys.readouterr().out
        listed = shown.partition("the ten that differ most\n")[2].partition("\n\n")[0]
        assert len(listed.splitlines()) == 10
        assert shown.endswith("42 of 42 modules differ\n")

    def test_names_with_control_characters_are_made_printable(self, tmp_path, capsys):
        odd = {"base_model_name_or_path": "\x1b[31m"}
        write_released_adapter(tmp_path / "odd", config=odd)
        assert diff("a", "odd") == 0
        assert "\x1b" not in capsys.readouterr().out
