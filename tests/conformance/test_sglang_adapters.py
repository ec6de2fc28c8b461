"""Our verdict of every recorded adapter is SGLang's own: refused or not, and module by module.

The two sides count differently in one place. SGLang's side knows only where numbers land, so that
it calls a module applied that lands with a wrong scale, in the wrong rows or in one expert of many;
we call it misapplied. What must agree:

* refused or not, and the stage;
* the modules that are dropped;
* with that, those that land: applied or misapplied here, applied or partial there;
* a module that is partial there is misapplied here, and so are those of a buffer of which experts,
  rows or columns stay empty, unless what is missing there is missing in the file (w3 beside w1).

SGLang's side follows the tensors of adapter_model.safetensors, not those of further files.
"""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from conformance.sglang_adapter_trials import SERVERS, Trial, trials, write_trial_world
from inkling_cli.checks.adapter import Consumer, make_subject
from inkling_cli.checks.adapter.folder import read_folder
from inkling_cli.checks.effect import Fate, module_name
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.sglang.causes import TOLD_BY, Cause
from inkling_cli.checks.verdicts.judging import Judgement, judge_adapter
from inkling_cli.checks.verdicts.question import Load, make_question
from inkling_cli.checks.verdicts.verdict import Outcome

VERDICTS = [
    json.loads(line)
    for line in Path(__file__).with_name("sglang_adapter_verdicts.jsonl").read_text().splitlines()
]

EXPLAINED = {
    r"\+key-twice": "SGLang reads a header that holds a name twice, and takes the last; we do not",
}
"""Pattern of an id → why our verdict differs; docs/conformance-sglang.md has more."""


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Return our judgement of a recorded adapter, made once."""
    world = write_trial_world(tmp_path_factory.mktemp("sglang"))
    made: dict[str, Judgement] = {}

    def get(verdict: dict) -> Judgement:
        if verdict["id"] not in made:
            made[verdict["id"]] = _judge_verdict(verdict, world)
        return made[verdict["id"]]

    return get


def judge(folder: Path, words: list[str], load: str, model: Path) -> Judgement:
    question = make_question(
        consumers=[Consumer.SGLANG],
        version=None,
        model=model,
        words=words,
        file=None,
        load=Load(load),
    )
    read = read_folder(folder)
    subject = None if read.adapter is None else make_subject(read.adapter, question.spec)
    return judge_adapter(read, subject, question)


def _judge_verdict(verdict: dict, world: Path) -> Judgement:
    trial = Trial(verdict["base"], tuple(verdict["mutations"]), verdict["server"])
    model = world / SERVERS[verdict["server"]].model
    return judge(trial.write(world), verdict["words"], verdict["load"], model)


def _explanation(verdict: dict) -> str | None:
    return next((pattern for pattern in EXPLAINED if re.search(pattern, verdict["id"])), None)


_PART_OF = {"gate_up_proj": r"gate_up_proj|w1|w3|gate_proj|up_proj", "down_proj": r"down_proj|w2"}


def must_be_misapplied(verdict: dict, modules: list[str]) -> set[str]:
    """Return the modules that land, but not whole or beside something empty."""
    found = set(verdict["partial"])
    for buffer, gaps in verdict["unfilled"].items():
        found |= {
            m for m in modules if _is_in(m, buffer) and not _is_missing(gaps, buffer, modules)
        }
    return found - set(verdict["dropped"])


def _is_in(module: str, buffer: str) -> bool:
    """Return whether a module lands in a buffer like `layers.1.gate_up_proj_shared_moe/B`."""
    if match := re.match(r"layers\.(\d+)\.(\w+)/", buffer):
        layer, target = match.groups()
        kind = re.sub(r"(_shared)?_moe$", "", target)
        if f"layers.{layer}." not in module or kind not in _PART_OF:
            return False
        place = (
            "shared_experts"
            if "_shared_moe" in target
            else "experts"
            if "_moe" in target
            else "mlp"
        )
        return bool(re.search(rf"\.{place}\.(\d+\.)?({_PART_OF[kind]})$", module))
    return buffer.split(".")[1].split("/")[0] in module.replace("unembed_tokens", "lm_head")


def _is_missing(gaps: dict[str, str], buffer: str, modules: list[str]) -> bool:
    """Return whether the gap is that of `w3`, which the file does not have in this layer."""
    if set(gaps) != {"rows"} or "gate_up" not in buffer:
        return False
    start, _, rest = gaps["rows"].partition(":")
    end, _, size = rest.partition(" of ")
    return 2 * int(start) == int(end) == int(size)


def _modules_of_first_file(judged: Judgement) -> list[str]:
    """Return the modules whose tensors SGLang's side follows: those of no further file."""
    adapter = judged.folder.adapter
    return [] if adapter is None else [module_name(tensor) for tensor in adapter.file.tensors]


def disagreement(verdict: dict, judged: Judgement) -> str | None:
    """Return in what the two sides differ, or None."""
    (ours,) = judged.verdicts
    stage = ours.stage.value if ours.stage else None
    codes = sorted({f.code for f in judged.findings if f.severity is Severity.ERROR})
    if verdict["status"] == "refused" or stage:
        theirs = verdict.get("stage")
        shown = f"SGLang {theirs}: {verdict.get('error')}; ours {stage}: {codes}"
        return None if stage == theirs else shown
    traced = set(_modules_of_first_file(judged))
    applied, wrong, dropped = (
        [module for module in ours.modules(fate) if module in traced]
        for fate in (Fate.APPLIED, Fate.MISAPPLIED, Fate.DROPPED)
    )
    if sorted(dropped) != sorted(verdict["dropped"]):
        return f"SGLang drops {verdict['dropped']}, ours {dropped}"
    if len(applied) + len(wrong) != verdict["num_applied"] + len(verdict["partial"]):
        return f"SGLang applies {verdict['num_applied']}, ours {len(applied)} and {len(wrong)}"
    late = must_be_misapplied(verdict, [*applied, *wrong]) - set(wrong)
    return f"applied, but not whole in SGLang: {sorted(late)}" if late else None


@pytest.mark.parametrize(
    "verdict", [v for v in VERDICTS if _explanation(v) is None], ids=lambda v: v["id"]
)
def test_verdict_is_the_engine_s(verdict, judged):
    assert disagreement(verdict, judged(verdict)) is None


PASSED_ON = ("ADP001", "ADP010", "ADP012")
"""Errors of adapters that SGLang applies as they are: names that it understands and no dialect has,
and a scale of 0."""


@pytest.mark.parametrize("verdict", VERDICTS, ids=lambda v: v["id"])
def test_an_adapter_is_applied_whole_or_an_error_says_why_not(verdict, judged):
    judgement = judged(verdict)
    (ours,) = judgement.verdicts
    errors = {f.code for f in judgement.findings if f.severity is Severity.ERROR}
    if ours.outcome is Outcome.APPLIED:
        assert errors <= set(PASSED_ON)
    else:
        assert errors


@pytest.mark.parametrize("pattern", EXPLAINED)
def test_every_explained_disagreement_is_one(pattern, judged):
    found = [verdict for verdict in VERDICTS if _explanation(verdict) == pattern]
    assert found
    assert all(disagreement(verdict, judged(verdict)) for verdict in found)


def test_enough_adapters_are_compared():
    counted = Counter(verdict["status"] for verdict in VERDICTS if not _explanation(verdict))
    assert sum(counted.values()) >= 230
    assert min(counted["accepted"], counted["refused"]) >= 100


def test_recorded_adapters_are_those_of_the_generator():
    made = {trial.id: trial.words() for trial in trials()}
    assert {v["id"]: v["words"] for v in VERDICTS}.items() <= made.items()


@pytest.mark.parametrize("verdict", VERDICTS, ids=lambda v: v["id"])
def test_every_cause_is_told_by_one_of_its_rules(verdict, judged):
    judgement = judged(verdict)
    (ours,) = judgement.verdicts
    errors = {f.code for f in judgement.findings if f.severity is Severity.ERROR}
    causes = {Cause(e.cause) for e in ours.effects if e.cause and e.is_meant}
    told = {cause for cause in causes if errors & set(TOLD_BY[cause])}
    assert told == causes
