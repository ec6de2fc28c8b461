"""Rules over `--lora-target-modules` of vLLM, which narrows what adapters can change."""

from collections.abc import Iterator
from dataclasses import replace

from inkling_cli.checks.effect import with_cause
from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.causes import Cause
from inkling_cli.checks.launch.vllm.effects import vllm_effects
from inkling_cli.checks.launch.vllm.wrapping import (
    TARGETS,
    matches_nothing,
    server_targets,
    unwrappable_matches,
)
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_count, format_names


@LAUNCH_RULES.rule(
    "VLM113", "target-cannot-be-wrapped", Severity.ERROR, engine=Engine.VLLM, stage=Stage.WRAP
)
def check_target_cannot_be_wrapped(subject: LaunchSubject) -> Iterator[Defect]:
    """`--lora-target-modules` names a module that vLLM cannot adapt.

    *What it checks*: each target against the modules of an Inkling that are no plain linear layers:
    the router (`gate`), embeddings, norms, convolutions, and whole blocks like `attn` and `mlp`.
    With `--fully-sharded-loras` also `qkvr` and its slices.

    *Why it matters*: vLLM loads the model and then refuses to start. Beside `lm_head` it takes
    `logits_processor`, but then does not apply the head of an adapter.

    *How to fix*: name modules that can be adapted: `qkvr`, `wo_ud`, `gate_up_proj`, `down_proj`,
    `experts`, `w13`, `w2`, `lm_head`.
    """
    if not (subject.lora_enabled and subject.is_inkling):
        return
    found = dict(unwrappable_matches(subject))
    if found:
        target, path = next(iter(found.items()))
        kept = [name for name in server_targets(subject) or () if name not in found]
        message = f"`{TARGETS}` names `{target}`, which is `{path}` and cannot be adapted"
        options = {TARGETS: " ".join(kept)} if kept else {}
        defect = launch_defect(
            subject.launch,
            message,
            subject.at(TARGETS),
            options=options,
            remove=[] if kept else [TARGETS],
        )
        is_served = set(found) == {"logits_processor"} and "lm_head" in kept
        yield replace(defect, stage=Stage.SERVED if is_served else Stage.WRAP)


@LAUNCH_RULES.rule("VLM114", "target-matches-nothing", Severity.WARNING, engine=Engine.VLLM)
def check_target_matches_nothing(subject: LaunchSubject) -> Iterator[Defect]:
    """`--lora-target-modules` names something that an Inkling does not have.

    *What it checks*: each target against the last parts and the whole paths of the base model's
    modules. Trainers' names count where vLLM knows them: `wq_du`, `experts.w1` with
    `--enable-moe-shared-loras`.

    *Why it matters*: vLLM passes over such a target without a word, and what an adapter holds there
    is not applied. `all`, `all-linear` and `q_proj` match nothing.

    *How to fix*: name vLLM's own modules, or leave the option out.
    """
    if not (subject.lora_enabled and subject.is_inkling and subject.model.spec):
        return
    targets = server_targets(subject) or ()
    wrong = [name for name in targets if matches_nothing(name, subject)]
    if wrong:
        kept = [name for name in targets if name not in wrong]
        message = f"`{TARGETS}` names {format_names(wrong)}, which the base model does not have"
        if kept:
            options = {TARGETS: " ".join(kept)}
            yield launch_defect(subject.launch, message, subject.at(TARGETS), options=options)
        else:
            yield launch_defect(subject.launch, message, subject.at(TARGETS), remove=[TARGETS])


@LAUNCH_RULES.rule(
    "VLM209", "targets-leave-out-modules", Severity.ERROR, engine=Engine.VLLM, stage=Stage.SERVED
)
def check_targets_leave_out_modules(subject: LaunchSubject) -> Iterator[Defect]:
    """`--lora-target-modules` leaves out modules that an adapter holds.

    *What it checks*: the modules of each adapter that was read against the targets of the launch,
    where the model's config is at hand.

    *Why it matters*: vLLM serves the adapter without these modules and says nothing: that part of
    the adapter answers as the base model.

    *How to fix*: leave `--lora-target-modules` out, or name all modules that the adapters hold.
    """
    for facts in subject.adapters if subject.lora_enabled and subject.model.spec else ():
        effects = with_cause(vllm_effects(subject, facts), Cause.LEFT_OUT)
        if effects:
            names = format_names([effect.module for effect in effects])
            count = format_count(len(effects), "module")
            yield launch_defect(
                subject.launch,
                f"`{TARGETS}` leaves out {count} of adapter `{facts.name}` ({names})",
                subject.at(TARGETS),
                remove=[TARGETS],
            )
