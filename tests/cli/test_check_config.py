"""`inkling check-config`: inputs, precedence, formats, exit codes."""

import io
import json
import sys

import pytest

from inkling_cli.main import main

CLEAN = "inkling check-config clean.sh"
ENV = "INKLING_MULTIMEM_AR"
FORMATS = ("full", "concise", "json", "github", "sarif")


def check(*arguments: str) -> int:
    return main(["check-config", *arguments])


def codes(capsys, *severities: str) -> list[str]:
    """Return the codes of the findings, of some severities only if any are given."""
    findings = json.loads(capsys.readouterr().out)["findings"]
    return [f["code"] for f in findings if not severities or f["severity"] in severities]


@pytest.mark.usefixtures("in_workspace")
class TestExitCodes:
    @pytest.mark.parametrize("output_format", FORMATS)
    def test_findings_are_1_in_every_format(self, output_format, capsys):
        assert check("serve.sh", "--output-format", output_format) == 1
        shown = capsys.readouterr()
        assert "VLM102" in shown.out
        assert shown.err == ""

    @pytest.mark.parametrize("output_format", FORMATS)
    def test_clean_is_0_in_every_format(self, output_format):
        assert check("clean.sh", "--output-format", output_format) == 0

    @pytest.mark.parametrize("output_format", FORMATS)
    def test_errors_are_2_and_leave_stdout_empty(self, output_format, capsys):
        assert check("nowhere.sh", "--output-format", output_format) == 2
        assert capsys.readouterr().out == ""

    @pytest.mark.parametrize(
        ("fail_on", "code"), [("error", 0), ("warning", 0), ("info", 1), ("never", 0)]
    )
    def test_fail_on_decides_from_which_severity(self, fail_on, code):
        arguments = ["--fail-on", fail_on, "--", "vllm", "serve", "org/some-model"]
        assert check(*arguments) == code

    def test_fail_on_never_ignores_errors(self):
        assert check("serve.sh", "--fail-on", "never") == 0


@pytest.mark.usefixtures("in_workspace")
class TestEnvironment:
    LAUNCH = ("--", "vllm", "serve", "model", "--enable-lora")

    def run(self, capsys, *arguments: str, launch=LAUNCH) -> list[str]:
        check("--output-format", "json", *arguments, *launch)
        return codes(capsys, "error", "warning")

    def test_nothing_is_inherited_unasked(self, capsys, monkeypatch):
        monkeypatch.setenv(ENV, "0")
        assert self.run(capsys) == ["VLM001"]
        assert self.run(capsys, "--inherit-env") == []

    def test_given_goes_before_inherited(self, capsys, monkeypatch):
        monkeypatch.setenv(ENV, "0")
        assert self.run(capsys, "--inherit-env", "--env", f"{ENV}=1") == ["VLM001"]

    def test_the_launch_goes_before_given(self, capsys):
        launch = ("--", "env", f"{ENV}=1", *self.LAUNCH[1:])
        assert self.run(capsys, "--env", f"{ENV}=0", launch=launch) == ["VLM001"]

    def test_given_values_are_expanded_in_scripts(self, capsys, tmp_path):
        script = tmp_path / "serve.sh"
        script.write_text(f"{ENV}=$ZERO vllm serve model --enable-lora")
        assert self.run(capsys, "--env", "ZERO=0", launch=(str(script),)) == []

    @pytest.mark.parametrize("value", ["NAME", "=1"])
    def test_value_without_a_name_is_an_error(self, value):
        assert check("--env", value, *self.LAUNCH) == 2


@pytest.mark.usefixtures("in_workspace")
class TestInputs:
    def test_standard_input_is_read(self, capsys, monkeypatch):
        text = b"vllm serve model --enable-lora"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        assert check("-", "--output-format", "json") == 1
        assert codes(capsys, "error") == ["VLM001"]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "is empty"),
            (b"   \n", "is empty"),
            (b"\xff\xfe\x00", "is not UTF-8 text"),
            (b"a\0b", "is not text"),
            (b"x" * 1_000_001, "is larger than"),
            (b"just some words", "a single value"),
            (b"- a\n- b\n", "a list"),
            (b"{", "not readable as YAML"),
        ],
    )
    def test_files_that_are_no_launch_are_errors(self, content, message, tmp_path, capsys):
        (tmp_path / "launch").write_bytes(content)
        assert check(str(tmp_path / "launch")) == 2
        assert message in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("missing.sh", "does not exist"),
            ("adapters", "Is a directory"),
            ("a\0b/c", "cannot be read"),
        ],
    )
    def test_names_that_are_no_file_are_errors(self, name, message, capsys):
        assert check(name) == 2
        assert message in capsys.readouterr().err

    @pytest.mark.parametrize("option", ["--model", "--lora"])
    def test_what_is_pointed_to_must_exist(self, option, capsys):
        assert check("clean.sh", option, "nowhere") == 2
        assert "nowhere` does not exist" in capsys.readouterr().err

    def test_model_option_replaces_the_launchs_model(self, capsys):
        check("--model", "llama", "--output-format", "json", "--", "vllm", "serve", "org/Inkling")
        report = json.loads(capsys.readouterr().out)
        assert report["launches"][0]["model"]["is_inkling"] is False

    def test_lora_option_says_where_an_adapter_lies(self, capsys):
        launch = ("vllm", "serve", "model", "--enable-lora", "--lora-modules", "a=/srv/a")
        check(
            "--env",
            f"{ENV}=0",
            "--lora",
            "a=adapters/rank32-for-vllm",
            "--output-format",
            "json",
            "--",
            *launch,
        )
        assert codes(capsys) == ["VLM104", "VLM202"]

    def test_config_file_of_the_command_is_read_below_the_command(self, tmp_path, capsys):
        config = tmp_path / "vllm.yaml"
        config.write_text("max-loras: 4\nmax-cpu-loras: 2\nenable-lora: true\n")
        launch = ("env", f"{ENV}=0", "vllm", "serve", "model", "--config", str(config))
        assert check("--output-format", "json", "--", *launch) == 1
        report = json.loads(capsys.readouterr().out)
        (finding,) = [f for f in report["findings"] if f["severity"] == "error"]
        assert finding["code"] == "VLM102"
        assert finding["location"] == {"file": str(config), "line": 2, "key": "max-cpu-loras"}
        assert check("--", *launch, "--max-cpu-loras", "4") == 0

    def test_each_launch_of_a_script_is_judged(self, tmp_path, capsys):
        script = tmp_path / "both.sh"
        script.write_text(
            "vllm serve model --enable-lora &\nsglang serve model --max_lora_rank 4\n"
        )
        check(str(script), "--output-format", "json")
        report = json.loads(capsys.readouterr().out)
        findings = [f for f in report["findings"] if f["severity"] != "info"]
        found = [(f["code"], f["location"]["line"]) for f in findings]
        assert found == [("SGL001", 2), ("VLM001", 1), ("SGL003", 2)]
        assert [launch["engine"] for launch in report["launches"]] == ["vllm", "sglang"]

    @pytest.mark.parametrize(
        ("model", "is_inkling"),
        [
            ("thinkingmachines/Inkling-Small", True),
            ("/models/inkling/v1/", True),
            ("/srv/inkling/models/llama", None),
            ("org/some-model", None),
        ],
    )
    def test_name_tells_an_inkling_where_the_config_is_not_here(self, model, is_inkling, capsys):
        check("--output-format", "json", "--", "vllm", "serve", model)
        report = json.loads(capsys.readouterr().out)
        assert report["launches"][0]["model"]["is_inkling"] is is_inkling

    @pytest.mark.parametrize("model", ["~nobody-of-this-name/model", "x" * 5000, "a\0b", "."])
    def test_models_that_are_no_folder_are_said_not_failed_on(self, model, capsys):
        assert check("--output-format", "json", "--", "vllm", "serve", model) in (0, 1)
        assert codes(capsys)[0] in ("LCH101", "LCH102")

    def test_version_bounds_the_rules(self, capsys):
        check("clean.sh", "--engine-version", "nightly", "--output-format", "json")
        assert codes(capsys) == ["LCH106"]


@pytest.mark.usefixtures("in_workspace")
class TestFormats:
    def test_json_findings_have_every_key(self, capsys):
        check("serve.sh", "--output-format", "json")
        report = json.loads(capsys.readouterr().out)
        assert (report["version"], report["command"]) == (1, "check-config")
        assert report["status"] == "findings"
        keys = ["code", "name", "severity", "engine", "engine_version", "message", "help", "fix"]
        for finding in report["findings"]:
            assert list(finding) == [*keys, "location"]
            assert list(finding["location"]) == ["file", "line", "key"]

    def test_json_fix_uses_the_inputs_own_keys(self, capsys):
        check("launch.yaml", "--output-format", "json")
        report = json.loads(capsys.readouterr().out)
        fixes = {finding["code"]: finding["fix"] for finding in report["findings"]}
        assert fixes["VLM102"] == {"max_cpu_loras": "4"}
        assert fixes["VLM001"] == {ENV: "0"}

    def test_sarif_results_point_to_rules_and_files(self, capsys):
        check("serve.sh", "--output-format", "sarif")
        log = json.loads(capsys.readouterr().out)
        assert log["version"] == "2.1.0"
        (run,) = log["runs"]
        rules = run["tool"]["driver"]["rules"]
        for result in run["results"]:
            rule = rules[result["ruleIndex"]]
            assert rule["id"] == result["ruleId"]
            assert rule["shortDescription"]["text"]
            assert result["level"] in ("error", "warning", "note")
            (location,) = result["locations"]
            place = location["physicalLocation"]
            uri = place["artifactLocation"]["uri"]
            is_of_adapter = uri == "adapters/rank32/adapter_model.safetensors"
            assert is_of_adapter or (uri == "serve.sh" and place["region"]["startLine"] >= 1)

    def test_github_annotations_are_one_line_each(self, capsys):
        check("odd.sh", "--output-format", "github")
        lines = capsys.readouterr().out.splitlines()
        assert lines
        assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in lines)
        assert any("`x%25y`" in line for line in lines)

    def test_colour_carries_no_meaning(self, capsys, monkeypatch):
        check("serve.sh")
        plain = capsys.readouterr().out
        monkeypatch.setenv("FORCE_COLOR", "1")
        check("serve.sh")
        coloured = capsys.readouterr().out
        assert coloured != plain
        assert io.StringIO(coloured).read().count("\x1b[") > 10
        monkeypatch.setenv("NO_COLOR", "1")
        check("serve.sh")
        assert capsys.readouterr().out == plain

    def test_names_from_files_cannot_control_the_terminal(self, capsys):
        check("odd.sh")
        shown = capsys.readouterr().out
        assert "\x1b" not in shown
        assert "\\x1b[31m" in shown
