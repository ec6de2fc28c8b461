"""An adapter → what each consumer does with it, and everything that was found on the way."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from inkling_cli.checks.adapter import AdapterSubject, Consumer, check_adapter
from inkling_cli.checks.adapter.files import FOLDER_RULES
from inkling_cli.checks.adapter.folder import AdapterFolder
from inkling_cli.checks.adapter.native_effects import native_effects
from inkling_cli.checks.adapter.peft.effects import peft_effects
from inkling_cli.checks.effect import Effect
from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Finding, Severity, sort_findings
from inkling_cli.checks.launch import LAUNCH_RULES
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.memory_setup import read_setup
from inkling_cli.checks.launch.outcome import refusing_stage
from inkling_cli.checks.launch.sglang.effects import sglang_effects
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.effects import vllm_effects
from inkling_cli.checks.stage import Stage
from inkling_cli.checks.verdicts.judged_launch import JudgedLaunch, resolve
from inkling_cli.checks.verdicts.question import NO_MODEL, Question
from inkling_cli.checks.verdicts.verdict import Verdict, refused
from inkling_cli.memory.sizes import sizes_of

LaunchEffects = Callable[[LaunchSubject, AdapterFacts], tuple[Effect, ...]]
AdapterEffects = Callable[[AdapterSubject], tuple[Effect, ...]]

_ENGINES: Mapping[Consumer, LaunchEffects] = {
    Consumer.VLLM: vllm_effects,
    Consumer.SGLANG: sglang_effects,
}
_LIBRARIES: Mapping[Consumer, AdapterEffects] = {
    Consumer.PEFT: peft_effects,
    Consumer.NATIVE: native_effects,
}
_TOLD_BY_ADAPTER_RULES = ("LCH202", "LCH205")
"""Rules over launches that pass on what rules over adapters say in full."""
_SIZES = "sizes against the base model: pass its config with `--model DIR|config.json`"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came of one adapter.

    Attributes:
        folder: as it lies on disk.
        subject: what the rules over adapters looked at; None where it cannot be read.
        verdicts: one for each consumer that was asked about.
        findings: sorted.
    """

    folder: AdapterFolder
    subject: AdapterSubject | None
    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]


def judge_adapter(
    folder: AdapterFolder, subject: AdapterSubject | None, question: Question
) -> Judgement:
    """Return what the consumers do with an adapter.

    Args:
        folder: the adapter's.
        subject: the adapter as the rules see it; None where it cannot be read.
        question: who is asked, and about which launch.

    Raises:
        InklingError: the model that the question names is not there.
    """
    found: list[Finding] = list(FOLDER_RULES.check(folder))
    if subject is not None:
        found += check_adapter(subject, list(question.consumers))
    verdicts = []
    for consumer in question.consumers:
        if consumer in _ENGINES:
            launch = resolve(folder, Engine(consumer.value), question)
            verdict, findings = _judge_launch(folder, consumer, launch)
            found += findings
        else:
            verdict = _judge_library(folder, subject, consumer, question.version)
        verdicts.append(verdict)
    return Judgement(folder, subject, tuple(verdicts), sort_findings(found))


def _judge_launch(
    folder: AdapterFolder, consumer: Consumer, launch: JudgedLaunch
) -> tuple[Verdict, list[Finding]]:
    subject, engine = launch.subject, launch.subject.engine
    all_findings = list(LAUNCH_RULES.check(subject, engine, subject.described_version))
    stage = refusing_stage(all_findings)
    effects: tuple[Effect, ...] = ()
    if launch.facts is not None:
        effects = _in_order(_ENGINES[consumer](subject, launch.facts))
    if stage is not None:
        effects = refused(effects, f"{engine.display_name} ends at {stage}")
    verdict = Verdict(
        adapter=str(folder.path),
        consumer=consumer,
        version=subject.version,
        effects=effects,
        stage=stage,
        launch=launch.assumed if launch.facts is not None else None,
        requires=launch.required,
        slot_bytes=_slot_bytes(subject) if launch.facts is not None else {},
        not_checked=(
            *_not_checked(folder, subject.model.spec is not None),
            *_other_version(engine.display_name, subject.version, subject.described_version),
        ),
    )
    nobody_asked = ("LCH101",) if subject.launch.model == NO_MODEL else ()
    told = (*_TOLD_BY_ADAPTER_RULES, *nobody_asked)
    findings = [f for f in all_findings if f.code not in told]
    if launch.assumed is not None:
        findings = [finding for finding in findings if finding.severity is Severity.ERROR]
    return verdict, findings


def _judge_library(
    folder: AdapterFolder, subject: AdapterSubject | None, consumer: Consumer, asked: str | None
) -> Verdict:
    known = consumer.known_version
    refuses_unread = subject is None and consumer is Consumer.NATIVE
    return Verdict(
        adapter=str(folder.path),
        consumer=consumer,
        version=asked or known,
        effects=() if subject is None else _in_order(_LIBRARIES[consumer](subject)),
        stage=Stage.ADAPTER_LOAD if refuses_unread else None,
        not_checked=(
            *_not_checked(folder, subject is not None and subject.spec is not None),
            *_other_version(consumer.display_name, asked or known, known),
        ),
    )


def _in_order(effects: Iterable[Effect]) -> tuple[Effect, ...]:
    return tuple(sorted(effects, key=lambda effect: effect.module))


def _not_checked(folder: AdapterFolder, has_spec: bool) -> Iterator[str]:
    if folder.problem is not None:
        yield "names and shapes, as the adapter cannot be read"
    elif not has_spec:
        yield _SIZES


def _other_version(name: str, version: str | None, judged: str | None) -> Iterator[str]:
    if version != judged:
        yield f"{name} {version}: judged as {judged}, the nearest version that is known"


def _slot_bytes(subject: LaunchSubject) -> dict[str, int]:
    """Return the bytes of one slot on one GPU by kind of module; empty if sizes are unknown."""
    spec = subject.model.spec
    if spec is None or not subject.lora_enabled:
        return {}
    parts = sizes_of(spec, read_setup(subject, spec).setup).slot
    return {part.kind.name.lower(): part.total_bytes for part in parts}
