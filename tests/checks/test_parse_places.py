"""In every form a finding names the file, the line on which its option stands, and the key."""

import re

import pytest

from checks.launch_forms import FORMS
from checks.test_fixing import COMMANDS, engine_of, fill
from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.judge import Judge
from inkling_cli.checks.launch.launch import Launch
from inkling_cli.checks.launch.parse.adapter_refs import parse_given_adapters
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.parse.launches import parse_launches


def names_of(key: str, launch: Launch) -> set[str]:
    """Return how an option, a variable or the model may be written where a finding says it is."""
    found = {key.lstrip("-"), key.lstrip("-").replace("-", "_")}
    found |= {use.spelled.lstrip("-") for use in launch.uses if use.name == key}
    return found


def stands(key: str, launch: Launch) -> bool:
    return key in launch.variables or any(
        key in (use.name, use.name.lstrip("-"), use.spelled) for use in launch.uses
    )


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize("case", COMMANDS, ids=lambda case: case.code)
def test_findings_name_the_line_of_their_key(case, form, world):
    written = form(fill(case, case.broken, world))
    if written is None:
        pytest.skip("this launch cannot be written so")
    name, text = written
    lines = text.splitlines()
    given = Given(engine=engine_of(case))
    lora = tuple(fill(case, value, world) for value in case.lora)
    adapters = parse_given_adapters(lora, Location(key="--lora"))
    for judged in Judge(given, None, adapters).launches(parse_launches(text, name, given)):
        launch = judged.subject.launch
        for finding in judged.findings:
            place = finding.location
            assert place.file or place.key == "--lora", finding
            is_elsewhere = place.file != name or finding.name == "no-model"
            if is_elsewhere or place.key is None or not stands(place.key, launch):
                continue
            assert place.line is not None, finding
            line = lines[place.line - 1]
            if line.lstrip().startswith("value:"):
                line = lines[place.line - 2]  # of an entry of two lines the one with the value
            if re.search(r"\$\{?ARGS", line):
                continue  # the option stands in a variable, its use is what counts
            assert any(word in line for word in names_of(place.key, launch)), (finding, line)
