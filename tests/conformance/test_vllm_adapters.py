"""Adapters that vLLM itself has judged: what becomes of each module is what we say.

`vllm_adapter_verdicts.jsonl` holds the engine's verdicts (`record_vllm_adapters.py` makes it), in
the engine's terms: applied, dropped, or partial with the share of each factor that arrived, and
what of a touched slot stays empty. Ours follow from them so: what is partial, of which one factor
alone arrives, or which leaves a part of its place empty, is misapplied.
A disagreement that has a reason stands in `EXPLAINED`, and in docs/conformance-vllm.md.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.vllm_adapter_cases import (
    SETTINGS,
    Case,
    draft_of_case,
    generate,
    modules_of,
    words_of,
)
from conformance.vllm_adapters import write_vllm_world
from conformance.vllm_drafts import write_draft
from inkling_cli.checks.adapter import Consumer, make_subject
from inkling_cli.checks.adapter.folder import read_folder
from inkling_cli.checks.effect import Fate
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.vllm.causes import Cause
from inkling_cli.checks.launch.vllm.layers import QKVR, W13
from inkling_cli.checks.launch.vllm.loader_names import parse_factor_name
from inkling_cli.checks.verdicts.judging import Judgement, judge_adapter
from inkling_cli.checks.verdicts.question import Load, make_question
from inkling_cli.checks.verdicts.verdict import Outcome

RECORD = Path(__file__).with_name("vllm_adapter_verdicts.jsonl")
VERDICTS = [json.loads(line) for line in RECORD.read_text().splitlines()]

EXPLAINED = {"config rank-fraction | shared": "an adapter whose config is not sound is not read"}
"""The id of a case → why we and the engine differ on it."""

_BESIDE_THE_POINT = {"VLM108", "ADP001", "ADP010", "ADP012"}
"""Errors that stand beside modules that vLLM applies: full sharding whatever the adapter holds,
names that vLLM takes and the adapter's dialect does not have, and a scale of 0."""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_vllm_world(tmp_path_factory.mktemp("vllm"))


@pytest.fixture(scope="module")
def judge(world, tmp_path_factory):
    """Return a function from a line of the record to our judgement, each made once."""
    done: dict[str, Judgement] = {}

    def judged(line: dict[str, Any]) -> Judgement:
        if line["id"] not in done:
            done[line["id"]] = _judge(line, world, tmp_path_factory.mktemp("adapter") / "oracle")
        return done[line["id"]]

    return judged


def case_of(line: dict[str, Any]) -> Case:
    """Return the case of a line of the record."""
    return Case(line["start"], tuple(line["changes"]), line["setting"])


def _judge(line: dict[str, Any], world: Path, path: Path) -> Judgement:
    case = case_of(line)
    setting = SETTINGS[case.setting]
    write_draft(path, draft_of_case(case.start, case.changes))
    question = make_question(
        consumers=[Consumer.VLLM],
        version=None,
        model=world / setting.model,
        words=[word.replace("{adapter}", str(path)) for word in words_of(case)],
        file=None,
        load=Load.STARTUP,
        env=[f"{name}={value}" for name, value in setting.env.items()],
    )
    folder = read_folder(path)
    subject = None if folder.adapter is None else make_subject(folder.adapter, question.spec)
    return judge_adapter(folder, subject, question)


def fates_of(judgement: Judgement) -> dict[Fate, set[str]]:
    """Return fate → modules."""
    (verdict,) = judgement.verdicts
    return {fate: set(verdict.modules(fate)) for fate in Fate}


def _letters(line: dict[str, Any]) -> dict[str, str]:
    """Return module → the engine's verdict on it."""
    case = case_of(line)
    modules = modules_of(draft_of_case(case.start, case.changes))
    return dict(zip(modules, line["modules"], strict=True))


def _paths_of_slot(slot: str) -> set[str]:
    """Return the paths of the modules that fill one of the engine's slots."""
    owner, _, part = slot.rpartition("/")
    index = int(part[1:])
    if owner.endswith((".experts/w13", ".experts/w2")):
        owner, _, kind = owner.rpartition("/")
        names = {"w13": ("w1", "w3")[index], "w2": "w2"}[kind]
        numbered = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}[names]
        one_by_one = {f"{owner}.{expert}.{numbered}" for expert in range(4)}
        return {f"{owner}.{names}", owner, f"{owner}.base_layer", *one_by_one}
    parent, _, last = owner.rpartition(".")
    slices = {"qkvr": QKVR, "w13": W13}.get(last)
    return {f"{parent}.{slices[index]}"} if slices else {owner}


def _told(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["id"] not in EXPLAINED]


every_case = pytest.mark.parametrize("line", _told(VERDICTS), ids=lambda line: line["id"])
accepted_cases = pytest.mark.parametrize(
    "line",
    [line for line in _told(VERDICTS) if line["status"] == "accepted"],
    ids=lambda line: line["id"],
)


def disagreements(line: dict[str, Any], judgement: Judgement) -> list[str]:
    """Return in words where our judgement differs from the engine's verdict."""
    (verdict,) = judgement.verdicts
    stage = verdict.stage.value if verdict.stage else None
    if stage != line["stage"]:
        return [f"stage {stage}, the engine's is {line['stage']}: {line['error']}"]
    if line["status"] != "accepted":
        return [] if verdict.outcome is Outcome.REFUSED else [f"outcome {verdict.outcome}"]
    letters, fates = _letters(line), fates_of(judgement)
    dropped = {m for m, letter in letters.items() if letter == "d"}
    reached, partial = set(letters) - dropped, set(line["partial"])
    found = []
    if fates[Fate.DROPPED] != dropped:
        found.append(f"dropped differ in {sorted(fates[Fate.DROPPED] ^ dropped)}")
    ours = fates[Fate.APPLIED] | fates[Fate.MISAPPLIED]
    if ours != reached:
        found.append(f"applied or misapplied differ in {sorted(ours ^ reached)}")
    if not partial <= fates[Fate.MISAPPLIED]:
        found.append(f"partial, not misapplied: {sorted(partial - fates[Fate.MISAPPLIED])}")
    misapplied = {parse_factor_name(f"{m}.lora_A.weight").module for m in fates[Fate.MISAPPLIED]}
    for slot in line["unfilled"]:
        if misapplied.isdisjoint(_paths_of_slot(slot)):
            found.append(f"unfilled, nothing misapplied: {slot}")
    return found


def errors_of(judgement: Judgement) -> set[str]:
    """Return the codes of the errors that were found."""
    return {f.code for f in judgement.findings if f.severity is Severity.ERROR}


@every_case
def test_every_module_ends_as_in_the_engine(line, judge):
    assert disagreements(line, judge(line)) == []


@pytest.mark.parametrize("id_", EXPLAINED)
def test_explained_difference_still_exists(id_, judge):
    (line,) = [line for line in VERDICTS if line["id"] == id_]
    assert disagreements(line, judge(line))


@accepted_cases
def test_applied_is_what_has_no_error(line, judge):
    judgement = judge(line)
    (verdict,) = judgement.verdicts
    is_applied = verdict.outcome is Outcome.APPLIED
    assert is_applied == (not errors_of(judgement) - (_BESIDE_THE_POINT if is_applied else set()))


@accepted_cases
def test_every_cause_is_told_by_a_rule(line, judge):
    judgement = judge(line)
    (verdict,) = judgement.verdicts
    told = errors_of(judgement)
    for cause in {Cause(e.cause) for e in verdict.effects if e.cause and e.is_meant}:
        assert told & set(cause.rules), (cause, told)


@every_case
def test_every_module_that_is_not_applied_has_a_reason(line, judge):
    (verdict,) = judge(line).verdicts
    for effect in verdict.effects:
        assert (effect.fate is Fate.APPLIED) == (effect.reason == ""), effect


def test_every_cause_occurs(judge):
    found = {
        effect.cause for line in VERDICTS for v in judge(line).verdicts for effect in v.effects
    }
    assert set(Cause) - found <= {Cause.LORA_OFF, Cause.NO_MODEL, Cause.TARGETS_UNKNOWN}


def test_enough_cases_are_compared():
    assert len(VERDICTS) - len(EXPLAINED) >= 500


def test_record_is_that_of_the_cases_that_are_generated():
    made = {case.id for case in generate()}
    assert {line["id"] for line in VERDICTS} <= made
