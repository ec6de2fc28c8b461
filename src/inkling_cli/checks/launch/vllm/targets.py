"""Rules over `--lora-target-modules` of vLLM, which narrows what adapters can change."""

from collections.abc import Iterator
from dataclasses import replace

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.vllm.layers import adaptable_modules
from inkling_cli.checks.launch.vllm.loader_names import parse_factor_name
from inkling_cli.checks.launch.vllm.wrapping import (
    TARGETS,
    matches_nothing,
    passes_targets,
    server_targets,
    unwrappable_matches,
)
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names


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
    if server_targets(subject) is None or not (subject.lora_enabled and subject.model.spec):
        return
    for facts in subject.adapters:
        left_out = _left_out(subject, facts)
        if left_out:
            yield launch_defect(
                subject.launch,
                f"`{TARGETS}` leaves out {len(left_out)} modules of adapter `{facts.name}` "
                f"({format_names(left_out)})",
                subject.at(TARGETS),
                remove=[TARGETS],
            )


def _left_out(subject: LaunchSubject, facts: AdapterFacts) -> list[str]:
    """Return the names on disk of modules that vLLM would apply but for the targets."""
    spec = subject.model.spec
    if spec is None:
        return []
    known = adaptable_modules(spec)
    found: dict[str, None] = {}
    for name in facts.adapter.file.tensors:
        factor = parse_factor_name(name)
        if factor is None:
            continue
        path = _target_path(factor.module)
        is_known = path in known.slots or path in known.expert_layers
        if is_known and not passes_targets(path, subject):
            found[name.removesuffix(".weight").rpartition(".")[0]] = None
    return list(found)


def _target_path(module: str) -> str:
    """Return the path of the module that would be wrapped for an adapter's module."""
    before, dot, _ = module.partition(".mlp.experts")
    return before + dot if dot else module
