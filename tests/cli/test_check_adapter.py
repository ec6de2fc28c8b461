"""`inkling check-adapter`: launches, verdicts, exit codes, what people see."""

import json

import pytest

from inkling_cli.main import main

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
