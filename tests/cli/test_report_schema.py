"""The JSON of commands with findings is what its schema says, and the schema what the code says."""

import json
from importlib.resources import files

import pytest
from jsonschema import Draft202012Validator

from cli.report_commands import COMMANDS
from inkling_cli.checks.adapter import Consumer
from inkling_cli.checks.effect import Fate
from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Finding, Location, Report, Severity
from inkling_cli.checks.stage import Stage
from inkling_cli.checks.verdicts.verdict import Outcome
from inkling_cli.main import main
from inkling_cli.render.json_report import REPORT_VERSION, finding_object, report_object

SCHEMA = json.loads((files("inkling_cli") / "schemas" / "report.schema.json").read_text("utf-8"))
DEFINITIONS = SCHEMA["$defs"]
VALIDATOR = Draft202012Validator(SCHEMA)


def report_of(capsys, *words: str):
    main([words[0], "--output-format", "json", *words[1:]])
    return json.loads(capsys.readouterr().out)


def errors_in(value) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(value)]


def make_report(**changes) -> dict:
    """Return a valid report of one finding."""
    finding = Finding("VLM102", "some-rule", Severity.ERROR, "message", "help", Location("a", 1))
    return report_object(Report("some-command", (finding,)), {}) | changes


def test_schema_is_one():
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.usefixtures("in_workspace")
class TestOutput:
    @pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
    def test_output_is_valid(self, words, capsys):
        assert errors_in(report_of(capsys, *words)) == []

    def test_several_launches_are_valid(self, capsys, tmp_path):
        script = tmp_path / "both.sh"
        script.write_text("vllm serve model --enable-lora &\nsglang serve org/Inkling\n")
        report = report_of(capsys, "check-config", str(script))
        assert errors_in(report) == []
        assert len(report["launches"]) == 2

    def test_a_corrected_launch_is_valid(self, capsys):
        report = report_of(capsys, "check-config", "--fix", "serve.sh")
        assert errors_in(report) == []
        assert report["fixed"]
        assert "--max-cpu-loras" in report["text"]

    def test_cases_hold_every_severity_status_and_engine(self, capsys):
        reports = [report_of(capsys, *words) for words in COMMANDS.values()]
        findings = [finding for report in reports for finding in report["findings"]]
        assert {finding["severity"] for finding in findings} == set(Severity)
        assert {report["status"] for report in reports} == {"clean", "findings"}
        assert {finding["engine"] for finding in findings} == {None, "vllm", "sglang", "peft"}
        launches = [launch for report in reports for launch in report.get("launches", ())]
        assert {launch["outcome"]["status"] for launch in launches} == {"starts", "refused"}


class TestSchemaAndCode:
    def test_finding_has_the_keys_of_the_schema(self):
        finding = finding_object(Finding("XXX001", "some-rule", Severity.INFO, "message"))
        assert list(finding) == list(DEFINITIONS["finding"]["properties"])
        assert list(finding) == DEFINITIONS["finding"]["required"]
        assert list(finding["location"]) == DEFINITIONS["location"]["required"]

    def test_severities_are_those_of_the_code(self):
        assert DEFINITIONS["finding"]["properties"]["severity"]["enum"] == list(Severity)

    def test_engines_are_those_of_the_code(self):
        assert DEFINITIONS["finding"]["properties"]["engine"]["enum"] == [*Consumer, None]
        assert DEFINITIONS["launch"]["properties"]["engine"]["enum"] == list(Engine)

    def test_stages_are_those_that_refuse(self):
        refusals = [stage for stage in Stage if stage.is_refusal]
        assert DEFINITIONS["outcome"]["properties"]["stage"]["enum"] == [*refusals, None]
        assert DEFINITIONS["verdict"]["properties"]["stage"]["enum"] == [*refusals, None]

    def test_verdicts_are_those_of_the_code(self):
        verdict = DEFINITIONS["verdict"]["properties"]
        assert verdict["verdict"]["enum"] == list(Outcome)
        assert verdict["engine"]["enum"] == list(Consumer)
        assert verdict["modules"]["required"] == list(Fate)
        fates = verdict["reasons"]["items"]["properties"]["fate"]["enum"]
        assert fates == [fate for fate in Fate if fate is not Fate.APPLIED]

    def test_version_is_that_of_the_code(self):
        assert SCHEMA["properties"]["version"]["const"] == REPORT_VERSION


class TestStrictness:
    def test_further_keys_of_commands_are_taken(self):
        assert errors_in(make_report(plan={"slots": 4})) == []

    @pytest.mark.parametrize("key", DEFINITIONS["finding"]["required"])
    def test_no_key_of_a_finding_may_be_absent(self, key):
        report = make_report()
        del report["findings"][0][key]
        assert errors_in(report)

    @pytest.mark.parametrize(
        "change",
        [
            {"other": 1},
            {"severity": "fatal"},
            {"engine": "other"},
            {"code": "VLM1"},
            {"message": ""},
            {"fix": {"--max-loras": 4}},
            {"fix": {}},
            {"location": {"file": None, "line": 0, "key": None}},
            {"location": {"file": None, "line": None}},
        ],
        ids=str,
    )
    def test_findings_of_another_kind_are_not_taken(self, change):
        report = make_report()
        report["findings"][0].update(change)
        assert errors_in(report)

    @pytest.mark.parametrize(
        "change",
        [
            {"version": 2},
            {"status": "clean"},
            {"findings": []},
            {"command": "check-config"},
            {"command": "check-adapter"},
        ],
        ids=str,
    )
    def test_reports_that_contradict_themselves_are_not_taken(self, change):
        assert errors_in(make_report()) == []
        assert errors_in(make_report(**change))

    @pytest.mark.parametrize(("status", "stage"), [("starts", "model"), ("refused", None)])
    def test_outcome_names_a_stage_where_it_refuses(self, status, stage):
        outcome = {"$ref": "#/$defs/outcome", "$defs": DEFINITIONS}
        validator = Draft202012Validator(outcome)
        assert list(validator.iter_errors({"status": status, "stage": stage}))
