"""Every rule over launches: its smallest breach is found, alone, and its clean sibling is clean."""

import shlex

import pytest

from checks.launch_case import Case
from checks.launch_cases import CASES
from checks.launches import check
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch import LAUNCH_RULES


def _fill(text: str, world) -> str:
    return text.format(root=world, model=world / "model", adapters=world / "adapters")


def _check(case: Case, text: str, world, folder, version: str | None):
    lora = [_fill(value, world) for value in case.lora]
    file = case.clean_file if text is case.clean and case.clean_file else case.file
    return check(_fill(text, world), folder, file, lora, version, case.gpu_memory)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_breach_is_found_and_nothing_else(case, world, tmp_path):
    findings = _check(case, case.broken, world, tmp_path, case.engine_version)
    assert {finding.code for finding in findings} == {case.code, *case.also}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_clean_sibling_has_no_findings(case, world, tmp_path):
    findings = _check(case, case.clean, world, tmp_path, None)
    assert [finding.code for finding in findings] == list(case.also_clean)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_finding_says_where_and_what_to_do(case, world, tmp_path):
    rule = LAUNCH_RULES.rules[case.code]
    for finding in _check(case, case.broken, world, tmp_path, case.engine_version):
        if finding.code != case.code:
            continue
        assert finding.location.file
        assert finding.location.line or case.file is None or finding.location.file != case.file
        assert (
            finding.help or finding.severity is Severity.INFO or case.code in ("LCH007", "LCH008")
        )
        assert not finding.message.endswith(".")
        assert "\n" not in finding.message
        assert finding.engine == rule.engine


def _apply(fix: dict[str, str | None], command: str) -> str:
    """Return the command with options and variables set, or removed, as a fix says."""
    words = shlex.split(command)
    for key, value in fix.items():
        if not key.startswith("--"):
            words = [word for word in words if not word.startswith(f"{key}=")]
            words.insert(0, f"{key}={value}")
            continue
        while key in words:
            start = words.index(key)
            rest = (i for i in range(start + 1, len(words)) if words[i].startswith("-"))
            del words[start : next(rest, len(words))]
        words += [] if value is None else [key] if value == "true" else [key, *value.split()]
    return shlex.join(words)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.file is None], ids=lambda case: case.code
)
def test_fix_remedies_the_defect(case, world, tmp_path):
    for finding in _check(case, case.broken, world, tmp_path, case.engine_version):
        if finding.code != case.code or not finding.fix or "target_modules" in finding.fix:
            continue
        fixed = _apply(finding.fix, _fill(case.broken, world))
        lora = [_fill(value, world) for value in case.lora]
        after = check(fixed, tmp_path, None, lora, case.engine_version, case.gpu_memory)
        assert case.code not in {other.code for other in after}


def test_every_rule_has_a_case():
    assert {case.code for case in CASES} == set(LAUNCH_RULES.rules)


def test_no_rule_has_two_cases():
    assert len({case.code for case in CASES}) == len(CASES)
