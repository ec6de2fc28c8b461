"""`inkling check-adapter`: launches, verdicts, exit codes, what people see."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from factories import (
    TINY,
    Module,
    released_adapter_config,
    released_modules,
    write_adapter,
    write_released_adapter,
)
from inkling_cli.main import main
from inkling_runtime.adapter.adapter import read_adapter

ENV = ("--env", "INKLING_MULTIMEM_AR=0")
FORMATS = ("full", "concise", "json", "github", "sarif")


def check(*arguments: str) -> int:
    return main(["check-adapter", *arguments])


def report(capsys, *arguments: str) -> dict:
    check("--output-format", "json", *arguments)
    return json.loads(capsys.readouterr().out)


def verdicts(capsys, *arguments: str) -> dict[str, str]:
    found = report(capsys, *arguments)["verdicts"]
    return {verdict["engine"]: verdict["verdict"] for verdict in found}


@pytest.mark.usefixtures("in_workspace")
class TestExitCodes:
    @pytest.mark.parametrize("output_format", FORMATS)
    def test_findings_are_1_in_every_format(self, output_format, capsys):
        words = ("adapters/released", "--engine", "vllm", "--output-format", output_format)
        assert check(*words) == 1
        shown = capsys.readouterr()
        assert "VLA001" in shown.out
        assert shown.err == ""

    @pytest.mark.parametrize("output_format", FORMATS)
    def test_clean_is_0_in_every_format(self, output_format):
        words = ("adapters/released", "--engine", "sglang", "--model", "model")
        assert check(*words, "--output-format", output_format) == 0

    @pytest.mark.parametrize(
        "words",
        [
            ("nowhere",),
            ("adapters/released", "--model", "nowhere"),
            ("adapters/released", "--engine", "vllm", "--launch", "nowhere.sh"),
            ("adapters/released", "--engine", "vllm", "--"),
            ("adapters/released", "--", "--max-loras", "1"),
            ("adapters/released", "--from", "other"),
        ],
        ids=" ".join,
    )
    def test_errors_are_2_and_leave_stdout_empty(self, words, capsys):
        assert check(*words) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith("error: ")
        assert "bug" not in shown.err

    @pytest.mark.parametrize("option", ["--launch", "--env-file"])
    def test_a_file_that_is_not_there_is_said_in_this_commands_words(self, option, capsys):
        assert check("adapters/released", option, "nowhere") == 2
        shown = capsys.readouterr().err
        assert "`nowhere` does not exist" in shown
        assert "check-config" not in shown

    def test_an_empty_version_is_an_error(self, capsys):
        assert check("adapters/released", "--engine", "vllm", "--engine-version", "") == 2
        assert "`--engine-version`" in capsys.readouterr().err

    def test_a_pipe_beside_an_adapter_is_not_waited_for(self, tmp_path, in_workspace):
        folder = write_released_adapter(tmp_path / "a")
        os.mkfifo(folder / "added_tokens.json")
        assert check(str(folder), "--model", "model", "--engine", "sglang") in (0, 1)

    def test_an_adapter_that_cannot_be_read_is_a_finding(self, capsys):
        assert check("adapters/torn", "--model", "model") == 1
        assert "safetensors" in capsys.readouterr().out


@pytest.mark.usefixtures("in_workspace")
class TestLaunches:
    def test_each_consumer_has_a_verdict(self, capsys):
        found = verdicts(capsys, "adapters/released", "--model", "model")
        assert found == {
            "vllm": "partial",
            "sglang": "applied",
            "peft": "none",
            "native": "applied",
        }

    def test_options_after_the_dashes_are_the_engines(self, capsys):
        words = ("adapters/for-vllm", "--engine", "vllm", "--model", "model")
        shared = ("--", "--enable-moe-shared-loras")
        assert verdicts(capsys, *words, *ENV, *shared) == {"vllm": "applied"}
        assert verdicts(capsys, *words, *shared) == {"vllm": "refused"}
        assert verdicts(capsys, "--engine", "vllm", *words, *shared) == {"vllm": "refused"}
        sharded = (*shared, "--fully-sharded-loras")
        assert verdicts(capsys, *words, *ENV, *sharded) == {"vllm": "partial"}

    def test_a_whole_command_names_engine_and_model(self, capsys):
        words = ("--", "sglang", "serve", "--model-path", "model", "--enable-lora")
        found = report(capsys, "adapters/released", *words)["verdicts"]
        assert [(v["engine"], v["verdict"], v["stage"]) for v in found] == [
            ("sglang", "refused", "startup")
        ]

    def test_a_launch_file_is_taken(self, capsys, tmp_path):
        script = tmp_path / "serve.sh"
        script.write_text(
            "export INKLING_MULTIMEM_AR=0\n"
            "vllm serve model --enable-lora --enable-moe-shared-loras --max-loras 2 \\\n"
            "  --lora-modules mine=adapters/for-vllm\n"
        )
        (verdict,) = report(capsys, "adapters/for-vllm", "--launch", str(script))["verdicts"]
        assert verdict["verdict"] == "applied"
        assert verdict["launch"] is None

    def test_the_engine_is_asked_for_where_a_launch_file_does_not_tell_it(self, capsys, tmp_path):
        options = tmp_path / "options.yaml"
        options.write_text("model: model\nenable-lora: true\n")
        words = ("adapters/for-vllm", "--launch", str(options))
        assert check(*words) == 2
        assert "`--engine vllm`" in capsys.readouterr().err
        assert verdicts(capsys, *words, "--engine", "vllm") == {"vllm": "refused"}

    def test_a_launch_that_tells_its_engine_is_not_judged_as_anothers(self, capsys, tmp_path):
        script = tmp_path / "serve.sh"
        script.write_text("vllm serve model --enable-lora\n")
        assert check("adapters/released", "--launch", str(script), "--engine", "sglang") == 2
        assert "the launch starts vLLM" in capsys.readouterr().err

    def test_findings_of_a_launch_are_told_once_for_all_adapters(self, capsys):
        words = ("--", "vllm", "serve", "model", "--enable-lora", "--max-cpu-loras", "0")
        found = report(capsys, "adapters/released", "adapters/for-vllm", *words)["findings"]
        codes = [finding["code"] for finding in found]
        assert codes.count("VLM001") == 1
        assert all(finding not in found[:index] for index, finding in enumerate(found))

    def test_a_version_that_is_not_known_is_said(self, capsys):
        words = ("adapters/for-vllm", "--engine", "vllm", "--model", "model")
        (verdict,) = report(capsys, *words, "--engine-version", "0.1")["verdicts"]
        assert verdict["not_checked"] == [
            "vLLM 0.1: judged as 0.33.0, the nearest version that is known"
        ]

    def test_a_model_that_nobody_named_is_not_missed(self, capsys):
        words = ("adapters/for-vllm", "--engine", "vllm", "--", "--max-loras", "1")
        assert "LCH101" not in [f["code"] for f in report(capsys, *words)["findings"]]

    def test_a_server_that_is_told_nothing_fills_one_expert(self, capsys):
        words = ("adapters/released", "--engine", "sglang", "--model", "model")
        late = ("--load", "dynamic", "--", "--lora-backend", "triton")
        told = (*late, "--lora-target-modules", "all", "--max-lora-rank", "8")
        found = report(capsys, *words, *told)["verdicts"][0]
        assert found["verdict"] == "partial"
        experts = [m for m in found["modules"]["misapplied"] if ".experts." in m]
        assert len(experts) == 6
        shared = "--experts-shared-outer-loras"
        assert verdicts(capsys, *words, *told, shared) == {"sglang": "applied"}

    def test_what_is_assumed_is_shown(self, capsys):
        check("adapters/for-vllm", "--engine", "vllm", "--model", "model")
        shown = capsys.readouterr().out
        assert "INKLING_MULTIMEM_AR=0 vllm serve model --enable-lora" in shown
        assert "for a slot on each GPU" in shown

    @pytest.mark.parametrize(
        ("engine", "name"), [("vllm", "for-vllm"), ("sglang", "released")], ids=["vllm", "sglang"]
    )
    def test_what_is_assumed_can_be_read_as_a_launch(self, engine, name, capsys, tmp_path):
        words = (f"adapters/{name}", "--engine", engine, "--model", "model")
        (verdict,) = report(capsys, *words)["verdicts"]
        file = tmp_path / "launch"
        file.write_text(verdict["launch"] + "\n")
        assert verdicts(capsys, f"adapters/{name}", "--launch", str(file)) == {engine: "applied"}

    def test_requirements_are_said(self, capsys):
        (verdict,) = report(capsys, "adapters/for-vllm", "--engine", "vllm")["verdicts"]
        assert verdict["requires"]["env"] == {"INKLING_MULTIMEM_AR": "0"}
        assert verdict["requires"]["flags"]["--enable-moe-shared-loras"] == ""


@pytest.mark.usefixtures("in_workspace")
class TestPeople:
    def test_modules_alike_in_all_layers_are_one_name(self, capsys):
        check("adapters/released", "--engine", "vllm", "--model", "model")
        assert "layers.1-2.mlp.shared_experts.w1" in capsys.readouterr().out

    def test_without_a_model_it_says_what_was_not_checked(self, capsys):
        assert check("adapters/released", "--engine", "native") == 0
        shown = capsys.readouterr().out
        assert "not checked" in shown
        assert "--model" in shown

    def test_every_module_that_is_not_applied_has_a_finding(self, capsys):
        found = report(capsys, "adapters/released", "--model", "model")
        for verdict in found["verdicts"]:
            errors = [f for f in found["findings"] if f["engine"] in (verdict["engine"], None)]
            assert bool(errors) == (verdict["verdict"] != "applied"), verdict["engine"]

    def test_several_adapters_have_verdicts_of_their_own(self, capsys):
        words = ("adapters/released", "adapters/for-vllm", "--engine", "vllm", "--model", "model")
        found = report(capsys, *words)
        assert [(v["adapter"], v["verdict"]) for v in found["verdicts"]] == [
            ("adapters/released", "partial"),
            ("adapters/for-vllm", "applied"),
        ]

    def test_both_files_of_a_folder_are_one_adapter(self, capsys):
        names = ("adapter_config.json", "adapter_model.safetensors")
        words = [f"adapters/released/{name}" for name in names]
        assert len(report(capsys, *words, "--engine", "native")["verdicts"]) == 1

    def test_modules_that_the_dialect_does_not_have_are_counted(self, capsys):
        check("adapters/released", "--from", "peft", "--engine", "native")
        shown = capsys.readouterr().out
        total = len(read_adapter(Path("adapters/released")).modules)
        assert f": 0 of {total} modules in the peft dialect" in shown
        assert f" in {total} modules for " in shown

    def test_a_module_that_was_not_judged_has_its_reason(self, capsys, tmp_path):
        name = "base_model.model.model.vision_tower.encoder_layers.0.projection"
        config = released_adapter_config(target_modules=["projection"])
        folder = write_adapter(tmp_path / "a", [Module(name, 8, 8)], config)
        check(str(folder), "--engine", "peft", "--model", "model")
        assert f"    not checked: `{name}`: " in capsys.readouterr().out

    def test_no_line_ends_in_blanks(self, capsys):
        check("adapters/released", "adapters/torn", "--from", "peft")
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.usefixtures("in_workspace")
class TestRemedies:
    """What is printed as a command runs, and repairs."""

    @pytest.mark.parametrize("name", ["a b", "$(x)", "it's", "-dash", "a;b"])
    def test_a_command_names_any_folder(self, name, capsys, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write_released_adapter(tmp_path / name)
        found = report(capsys, f"./{name}", "--engine", "vllm")["findings"]
        assert found
        for finding in found:
            (command,) = re.findall("`(inkling .*)`", finding["help"])
            words = shlex.split(command)
            words[words.index("OUT")] = f"out-{finding['code']}"
            assert main(words[1:]) == 0
            capsys.readouterr()
            assert check(words[-1], "--engine", "vllm") == 0
            capsys.readouterr()

    def test_a_conversion_that_needs_sizes_is_given_the_model(self, capsys, tmp_path):
        query = [module for module in released_modules(TINY) if module.name.endswith(".wq_du")]
        folder = write_adapter(tmp_path / "a", query, released_adapter_config(use_rslora=True))
        words = ("--engine", "sglang", "--model", "model")
        found = report(capsys, str(folder), *words)["findings"]
        helps = [f["help"] for f in found if "convert-adapter" in (f["help"] or "")]
        assert helps
        assert all(" --model MODEL" in text for text in helps)

    def test_no_conversion_is_advised_that_is_refused(self, capsys, tmp_path):
        folder = write_released_adapter(tmp_path / "a", config={"bias": "lora_only"})
        found = report(capsys, str(folder), "--engine", "vllm", "--engine", "sglang")["findings"]
        assert found
        assert [finding for finding in found if "convert-adapter" in finding["help"]] == []

    def test_a_prefix_is_wrong_only_where_another_is_expected(self, capsys):
        found = report(capsys, "adapters/released", "--from", "vllm", "--engine", "native")
        codes = [finding["code"] for finding in found["findings"]]
        assert "ADP001" in codes
        assert "ADP010" not in codes
