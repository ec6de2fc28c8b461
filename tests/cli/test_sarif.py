"""SARIF logs hold to SARIF 2.1.0, for every part of it that they use.

The names, types and demands below are the standard's (sections 3.13 to 3.52). Objects of the
standard take no other keys than it names, so each part here lists the keys that are used.
"""

import json
from importlib.metadata import version

import pytest
from jsonschema import Draft202012Validator

from cli.report_commands import COMMANDS
from inkling_cli.checks.catalog import iter_rules
from inkling_cli.checks.finding import Finding, Location, Report, Severity
from inkling_cli.main import main
from inkling_cli.render.sarif import sarif_object


def an_object(required: str, **properties):
    keys = required.split()
    return {
        "type": "object",
        "required": keys,
        "properties": properties,
        "additionalProperties": False,
    }


def an_array(items, **more):
    return {"type": "array", "items": items, **more}


TEXT = {"type": "string", "minLength": 1}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
MESSAGE = an_object("text", text=TEXT)
RULE = an_object(
    "id",
    id=TEXT,
    name=TEXT,
    shortDescription=MESSAGE,
    fullDescription=MESSAGE,
    help=MESSAGE,
    defaultConfiguration=an_object("", level=LEVEL),
)
LOCATION = an_object(
    "",
    physicalLocation=an_object(
        "artifactLocation",
        artifactLocation=an_object(
            "uri",
            uri={"type": "string", "pattern": r"^([A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-F]{2})+$"},
        ),
        region=an_object("startLine", startLine={"type": "integer", "minimum": 1}),
    ),
    logicalLocations=an_array(an_object("", name={"type": "string"}, kind=TEXT), uniqueItems=True),
)
RESULT = an_object(
    "message",
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": 0},
    level=LEVEL,
    message=MESSAGE,
    locations=an_array(LOCATION, minItems=1, uniqueItems=True),
)
DRIVER = an_object("name", name=TEXT, version=TEXT, rules=an_array(RULE, uniqueItems=True))
RUN = an_object(
    "tool",
    tool=an_object("driver", driver=DRIVER),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    results=an_array(RESULT),
)
LOG = Draft202012Validator(
    an_object(
        "version runs",
        **{"$schema": {"type": "string", "pattern": "sarif-schema-2.1.0.json$"}},
        version={"const": "2.1.0"},
        runs=an_array(RUN),
    )
)


def errors_in(log) -> list[str]:
    """Return what the log breaks: its structure, then what its parts say of each other."""
    found = [f"{error.json_path}: {error.message}" for error in LOG.iter_errors(log)]
    for run in [] if found else log["runs"]:
        rules = run["tool"]["driver"]["rules"]
        if len({rule["id"] for rule in rules}) < len(rules):
            found.append("two rules have the same id")
        for result in run["results"]:
            if result["ruleIndex"] >= len(rules):
                found.append(f"ruleIndex {result['ruleIndex']} of {len(rules)} rules")
            elif rules[result["ruleIndex"]]["id"] != result["ruleId"]:
                found.append(f"ruleIndex does not lead to {result['ruleId']}")
    return found


def log_of(*findings: Finding):
    return json.loads(json.dumps(sarif_object(Report("check-config", findings))))


@pytest.mark.usefixtures("in_workspace")
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_output_is_sarif(words, capsys):
    main([words[0], "--output-format", "sarif", *words[1:]])
    assert errors_in(json.loads(capsys.readouterr().out)) == []


def test_every_rule_has_a_description():
    findings = [Finding(rule.code, rule.name, rule.severity, "message") for rule in iter_rules()]
    log = log_of(*findings)
    assert errors_in(log) == []
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted(finding.code for finding in findings)
    assert all({"shortDescription", "fullDescription", "help"} <= set(rule) for rule in rules)


def test_version_is_that_of_the_package():
    driver = log_of()["runs"][0]["tool"]["driver"]
    assert driver["version"] == version("inkling-cli")


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("serve.sh", "serve.sh"),
        ("a b/ü%.sh", "a%20b/%C3%BC%25.sh"),
        ("/srv/a b.sh", "file:///srv/a%20b.sh"),
        ("<command line>", None),
        (None, None),
    ],
)
def test_files_are_uris_and_what_is_no_file_is_not(file, uri):
    log = log_of(Finding("XXX001", "a-b", Severity.INFO, "m", None, Location(file, 3, "--key")))
    assert errors_in(log) == []
    (location,) = log["runs"][0]["results"][0]["locations"]
    assert location["logicalLocations"] == [{"name": "--key", "kind": "member"}]
    place = location.get("physicalLocation")
    assert (place and place["artifactLocation"]["uri"]) == uri
    assert (place and place["region"]["startLine"]) == (uri and 3)


def test_what_is_no_sarif_is_seen():
    good = log_of(Finding("XXX001", "a-b", Severity.INFO, "m", "h", Location("f", 1, "k")))
    assert errors_in(good) == []
    for break_it in (
        lambda log: log.pop("version"),
        lambda log: log["runs"][0].pop("tool"),
        lambda log: log["runs"][0]["results"][0].update(level="info"),
        lambda log: log["runs"][0]["results"][0].update(ruleIndex=1),
        lambda log: log["runs"][0]["results"][0].update(file="f"),
        lambda log: log["runs"][0]["results"][0].update(ruleId="XXX002"),
    ):
        log = json.loads(json.dumps(good))
        break_it(log)
        assert errors_in(log)
