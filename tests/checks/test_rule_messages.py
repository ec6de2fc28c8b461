"""The finding of every rule, as people read it: one file for each family in `golden/`.

An entry is the launch or the adapter that breaks the rule, then the finding in the format `full`.
Paths are those of the test world without the folder that it lies in. `make golden` rewrites the
files; read every message in the diff as someone who meets it for the first time.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from checks.adapter_cases import COUNTED, find, write_case
from checks.launch_cases import CASES
from checks.launches import check
from checks.message_variants import VARIANTS
from inkling_cli.checks.adapter import ADAPTER_RULES
from inkling_cli.checks.adapter.files import FOLDER_RULES
from inkling_cli.checks.catalog import iter_rules
from inkling_cli.checks.finding import Finding, Report, Severity
from inkling_cli.checks.launch import LAUNCH_RULES
from inkling_cli.render.findings import render_full

GOLDEN = Path(__file__).parent / "golden"
STAGE_UNKNOWN = ("LCH102",)
"""Errors of which nobody knows at which stage the engine meets them."""
FAMILIES = sorted({rule.code[:3] for rule in iter_rules()})


def render(code: str, findings: tuple[Finding, ...], folders: tuple[Path, ...]) -> str:
    """Return the findings of one rule as `full` shows them, without the folders of this run."""
    report = Report("check", tuple(finding for finding in findings if finding.code == code))
    assert report.findings, f"{code} is not found"
    text = render_full(report, "", None).plain.rpartition("\n\n")[0]
    for folder in folders:
        text = text.replace(f"{folder}/", "")
    return text


def launch_entries(family: str, world: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the code and the entry of each case over launches."""
    for case in sorted((*CASES, *VARIANTS), key=lambda case: case.code):
        if not case.code.startswith(family):
            continue
        names = {"root": world, "model": world / "model", "adapters": world / "adapters"}
        broken = case.broken.format(**names)
        lora = [word.format(**names) for word in case.lora]
        findings = check(broken, folder, case.file, lora, case.engine_version, case.gpu_memory)
        shown = render(case.code, findings, (world, folder))
        words = ["$ inkling check-config", *(f"--lora {word}" for word in lora)]
        words += [f"--engine-version {case.engine_version}"] if case.engine_version else []
        words += [f"--gpu-memory {case.gpu_memory}"] if case.gpu_memory else []
        words += [f"{case.file}\n{broken.rstrip()}"] if case.file else ["--", broken]
        yield case.code, f"{' '.join(words).replace(f'{world}/', '')}\n\n{shown}"


def adapter_entries(family: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the code and the entry of each rule over adapters."""
    for code in sorted({*ADAPTER_RULES.rules, *FOLDER_RULES.rules}):
        if code.startswith(family):
            adapter, consumer = write_case(code, folder / code)
            findings = find(adapter, consumer, values=code in COUNTED)
            shown = render(code, findings, (folder / code,))
            words = f"--engine {consumer}{' --values' * (code in COUNTED)}"
            yield code, f"$ inkling check-adapter adapter {words}\n\n{shown}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_every_error_says_where_the_engine_meets_it(case, world, tmp_path):
    names = {"root": world, "model": world / "model", "adapters": world / "adapters"}
    lora = [word.format(**names) for word in case.lora]
    for finding in check(
        case.broken.format(**names), tmp_path, case.file, lora, case.engine_version
    ):
        if finding.severity is Severity.ERROR and finding.code not in STAGE_UNKNOWN:
            assert finding.stage is not None, finding.code


@pytest.mark.parametrize("family", FAMILIES)
def test_messages_are_those_that_were_reviewed(family, world, tmp_path, golden_update):
    entries = [*launch_entries(family, world, tmp_path), *adapter_entries(family, tmp_path)]
    rules = {*LAUNCH_RULES.rules, *ADAPTER_RULES.rules, *FOLDER_RULES.rules}
    assert {code for code, _ in entries} == {code for code in rules if code.startswith(family)}
    file = GOLDEN / f"{family}.txt"
    actual = "\n\n".join(text for _, text in entries) + "\n"
    if golden_update:
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(actual, "utf-8")
        return
    assert actual == file.read_text("utf-8"), "review the difference, then `make golden`"


def test_there_is_a_file_for_every_family_and_no_other():
    assert sorted(file.name for file in GOLDEN.iterdir()) == [f"{name}.txt" for name in FAMILIES]
