"""The rules of all rooms: identity, documentation, lookup."""

import re

import pytest

from inkling_cli.checks.catalog import find_rule, iter_rules, nearest_rule
from inkling_cli.checks.engine import parse_version
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.rule import Defect, Registry

RULES = list(iter_rules())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_rule_explains_itself(rule):
    summary = rule.text.partition("\n")[0]
    assert summary.endswith(".")
    for heading in ("What it checks", "Why it matters", "How to fix"):
        assert f"\n*{heading}*: " in rule.text


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_name_is_kebab_case(rule):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", rule.name)


def test_codes_and_names_are_unique_over_all_rooms():
    assert len({rule.code for rule in RULES}) == len(RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("text", ["VLM102", "vlm102", "max-cpu-loras-below-max-loras"])
def test_rule_is_found_by_code_and_by_name(text):
    assert find_rule(text).code == "VLM102"


@pytest.mark.parametrize(
    ("text", "code"),
    [("VLM10", "VLM101"), ("max-cpu", "VLM102"), ("max-cpu-lora-below-max-lora", "VLM102")],
)
def test_near_rule_is_suggested(text, code):
    assert find_rule(text) is None
    assert nearest_rule(text).code == code


@pytest.mark.parametrize("text", ["", "zzzzzzzz"])
def test_nothing_is_suggested_for_nonsense(text):
    assert nearest_rule(text) is None


def test_rule_holds_from_since_until_before():
    registry: Registry[int] = Registry()

    @registry.rule(
        "XXX001", "some-rule", Severity.ERROR, engine="vllm", since="0.30", before="0.33"
    )
    def some_rule(subject):
        yield Defect("defect")

    def codes(version):
        return [finding.code for finding in registry.check(0, "vllm", version)]

    assert codes("0.29.9") == []
    assert codes("0.30.0") == ["XXX001"]
    assert codes("0.32.9") == ["XXX001"]
    assert codes("0.33.0") == []
    assert codes(None) == []


def test_rule_of_another_engine_is_silent():
    registry: Registry[int] = Registry()

    @registry.rule("XXX001", "some-rule", Severity.ERROR, engine="vllm")
    def some_rule(subject):
        yield Defect("defect")

    assert list(registry.check(0, "sglang", None)) == []


def test_each_rule_is_asked_once_for_several_engines():
    registry: Registry[list[str]] = Registry()

    @registry.rule("XXX001", "for-all", Severity.ERROR)
    def for_all(asked):
        asked.append("all")
        yield Defect("defect")

    @registry.rule("XXX002", "for-one", Severity.ERROR, engine="vllm", since="0.33")
    def for_one(asked):
        asked.append("one")
        yield Defect("defect")

    asked: list[str] = []
    found = list(registry.check_for(asked, {"sglang": "0.5.23", "vllm": "0.33.0", "peft": None}))
    assert asked == ["all", "one"]
    assert [(f.code, f.engine_version) for f in found] == [("XXX001", None), ("XXX002", "0.33.0")]
    assert [f.code for f in registry.check_for([], {"vllm": "0.32.0"})] == ["XXX001"]


@pytest.mark.parametrize(("code", "name"), [("XXX001", "other-name"), ("XXX002", "some-name")])
def test_code_and_name_are_registered_once(code, name):
    registry: Registry[int] = Registry()
    registry.rule("XXX001", "some-name", Severity.ERROR)(lambda subject: iter(()))
    with pytest.raises(ValueError, match="registered twice"):
        registry.rule(code, name, Severity.ERROR)(lambda subject: iter(()))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0.33.0", (0, 33, 0)),
        ("v0.33.0", (0, 33, 0)),
        ("0.33.0rc1", (0, 33, 0)),
        ("0.5.23.post1", (0, 5, 23)),
        ("nightly", ()),
    ],
)
def test_version_is_its_release(text, numbers):
    assert parse_version(text) == numbers
