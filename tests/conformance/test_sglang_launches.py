"""Our outcome of every recorded launch is SGLang's own: accepted, or refused at the same stage."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from conformance.sglang_adapters import write_sglang_world
from conformance.sglang_launches import trials
from conformance.sglang_outcome import judge

VERDICTS = [
    json.loads(line)
    for line in Path(__file__).with_name("sglang_verdicts.jsonl").read_text().splitlines()
]

EXPLAINED = {
    r"^\d+-adapter-gone ": "a path that is not on this machine may be on the server's: info",
    r"qkvr wo_ud --dp-size 2$": "the HTTP side refuses to load into replicas; it was not run",
    r"--attention-backend fa3$": "the engine fails in its first forward pass, which was not run",
    r"-default-reasoning-effort-high": "read when the chat interface is set up, which was not",
}
"""Pattern of an id and its words → why our outcome differs; docs/conformance-sglang.md has more."""


def _explanation(verdict: dict) -> str | None:
    told = " ".join((verdict["id"], *verdict["words"]))
    return next((pattern for pattern in EXPLAINED if re.search(pattern, told)), None)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_sglang_world(tmp_path_factory.mktemp("sglang"))


def _later(verdict: dict) -> str | None:
    return f"{{root}}/adapters/{verdict['adapter']}" if verdict["load"] == "dynamic" else None


def _agrees(verdict: dict, world: Path) -> tuple[bool, str]:
    expected = verdict["stage"] if verdict["status"] == "refused" else None
    ours, errors = judge(verdict["words"], verdict["env"], _later(verdict), world)
    shown = [f"{error.code}@{error.stage}" for error in errors]
    return ours == expected, f"engine {expected}: {verdict['error']}; ours {ours}: {shown}"


@pytest.mark.parametrize(
    "verdict", [v for v in VERDICTS if _explanation(v) is None], ids=lambda v: v["id"]
)
def test_outcome_is_the_engine_s(verdict, world):
    agrees, shown = _agrees(verdict, world)
    assert agrees, shown


@pytest.mark.parametrize("pattern", EXPLAINED)
def test_every_explained_disagreement_is_one(pattern, world):
    found = [verdict for verdict in VERDICTS if _explanation(verdict) == pattern]
    assert found
    assert not any(_agrees(verdict, world)[0] for verdict in found)


def test_enough_launches_are_compared():
    counted = Counter(verdict["status"] for verdict in VERDICTS if not _explanation(verdict))
    assert sum(counted.values()) >= 300
    assert min(counted["accepted"], counted["refused"]) >= 100


def test_recorded_launches_are_those_of_the_generator():
    made = {trial.id: (trial.words(), dict(trial.env)) for trial in trials()}
    recorded = {verdict["id"]: (verdict["words"], verdict["env"]) for verdict in VERDICTS}
    assert recorded.items() <= made.items()
