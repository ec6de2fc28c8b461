"""Launches that vLLM itself has judged: whether it refuses, and at which stage, is what we say.

`vllm_verdicts.jsonl` holds the engine's verdicts (`record_vllm.py` makes it). A disagreement that
has a reason stands in `EXPLAINED`, and in docs/conformance-vllm.md; one that has gone must leave
the table.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from conformance.vllm_adapters import write_vllm_world
from conformance.vllm_launches import generate, words_of
from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch import LAUNCH_RULES
from inkling_cli.checks.launch.launch import ENVIRONMENT, Variable
from inkling_cli.checks.launch.outcome import refusing_stage
from inkling_cli.checks.launch.parse.given import Given
from inkling_cli.checks.launch.read import launches_of, read_source
from inkling_cli.checks.launch.subject import resolve_launch

RECORD = Path(__file__).with_name("vllm_verdicts.jsonl")
VERDICTS = [json.loads(line) for line in RECORD.read_text().splitlines()]

EXPLAINED = {
    r"adapter (no-b-of-(q|sink)|draft-no-[ab])$": "the recording host pins no memory",
    r"reasoning-parser (inkling|qwen3)$": "the recording host lacks a package of the parsers",
    r"reasoning-parser mine ": "a parser of a plugin may be known; the plugin is not read",
    r"quantization FP8$": "the recording host lacks the kernels",
}
"""What a launch's id matches → why we and the engine differ on it."""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_vllm_world(tmp_path_factory.mktemp("vllm"))


def outcome(verdict: dict[str, Any], root: Path) -> str | None:
    """Return the stage at which we say that a launch is refused; None if it is not."""
    words = [word.replace("{root}", str(root)) for word in verdict["words"]]
    place = Location(ENVIRONMENT)
    variables = {name: Variable(name, value, place) for name, value in verdict["env"].items()}
    (launch,) = launches_of(read_source(words), Given(variables))
    subject = resolve_launch(launch)
    findings = LAUNCH_RULES.check(subject, subject.engine, subject.described_version)
    stage = refusing_stage(findings)
    return stage.value if stage else None


def is_explained(verdict: dict[str, Any]) -> bool:
    """Return whether a launch is one on which we and the engine differ for a known reason."""
    parts = verdict["id"].split(" + ")
    return any(re.match(pattern, part) for pattern in EXPLAINED for part in parts)


@pytest.mark.parametrize(
    "verdict", [v for v in VERDICTS if not is_explained(v)], ids=lambda verdict: verdict["id"]
)
def test_outcome_is_the_engines(verdict, world):
    assert outcome(verdict, world) == verdict["stage"], verdict["error"]


@pytest.mark.parametrize("pattern", EXPLAINED)
def test_explained_difference_still_exists(pattern, world):
    alone = [v for v in VERDICTS if re.match(pattern, v["id"]) and " + " not in v["id"]]
    assert alone
    assert all(outcome(verdict, world) != verdict["stage"] for verdict in alone)


def test_enough_launches_are_compared():
    assert sum(not is_explained(verdict) for verdict in VERDICTS) >= 330


def test_record_is_that_of_the_launches_that_are_generated():
    made = {launch.id: words_of(launch) for launch in generate()}
    assert all(made[verdict["id"]] == verdict["words"] for verdict in VERDICTS)
