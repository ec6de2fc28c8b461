"""Rules over the modules that an adapter declares or holds, against those that a server adapts."""

from collections.abc import Iterator

from inkling_cli.checks.effect import module_name, with_cause
from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.advice import advise_conversion, format_adapters, launch_defect
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.sglang.causes import Cause
from inkling_cli.checks.launch.sglang.effects import sglang_effects
from inkling_cli.checks.launch.sglang.loading import landing_of, load_stage
from inkling_cli.checks.launch.sglang.pool import (
    declared_targets,
    needed_targets,
    pool_targets,
    server_targets,
)
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.sglang_targets import HALVES, POOL_TARGETS, unknown_targets
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

_OPTION = "--lora-target-modules"


@LAUNCH_RULES.rule("SGL205", "adapter-targets-unknown", Severity.ERROR, engine=Engine.SGLANG)
def check_adapter_targets_unknown(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter's `target_modules` are not words or names that SGLang understands.

    *What it checks*: `target_modules` in each adapter's config: the words `all-linear` and `all`,
    or a list of runtime names. Trainers' names (`wq_du`, `w1`), patterns and a missing value are
    neither.

    *Why it matters*: SGLang refuses to start, or refuses the adapter when it is loaded later;
    giving `--lora-target-modules` does not help.

    *How to fix*: set `target_modules` to `"all-linear"` in the adapter's config. The names of
    transformers in an adapter of PEFT need `inkling convert-adapter ADAPTER --to sglang -o OUT`.
    """
    for adapter in subject.adapters if subject.lora_enabled and subject.is_inkling else ():
        is_all = adapter.config.target_modules == ("all",) and not adapter.ref.at_startup
        if not is_all and (unknown := unknown_targets(adapter.config)):
            message = f"adapter `{adapter.name}` has {unknown}, which SGLang does not know"
            place, stage = adapter.at("target_modules"), load_stage(adapter)
            if adapter.adapter.dialect.written_as == "peft":
                yield Defect(message, advise_conversion(adapter, Engine.SGLANG), place, stage=stage)
                continue
            yield Defect(
                message,
                'set it to `"target_modules": "all-linear"`',
                place,
                {"target_modules": "all-linear"},
                stage=stage,
            )


@LAUNCH_RULES.rule("SGL206", "adapter-targets-outside-server", Severity.ERROR, engine=Engine.SGLANG)
def check_adapter_targets_outside_server(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter declares targets that `--lora-target-modules` leaves out.

    *What it checks*: the list in an adapter's config against `--lora-target-modules`.

    *Why it matters*: SGLang refuses to start, or refuses the adapter when it is loaded later.

    *How to fix*: add the targets to `--lora-target-modules`, or leave it out for start-up adapters.
    """
    given, pool = server_targets(subject), pool_targets(subject)
    if pool is None or not subject.lora_enabled:
        return
    missing: dict[AdapterFacts, list[str]] = {}
    for adapter in subject.adapters if given is not None else _loaded_later(subject):
        declared = declared_targets(adapter) or []
        if names := [name for name in declared if name in POOL_TARGETS and name not in pool]:
            missing[adapter] = names
    if missing:
        names = sorted({name for names in missing.values() for name in names})
        yield launch_defect(
            subject.launch,
            f"{format_adapters(list(missing))} {'declares' if len(missing) == 1 else 'declare'} "
            f"{format_names(names)}, expected only targets of "
            + (f"`{_OPTION}`" if given is not None else "the start-up adapters")
            + f": {format_names(pool) or 'none'}",
            subject.at(_OPTION),
            options={_OPTION: _in_order({*pool, *names})},
            stage=min(map(load_stage, missing), key=lambda stage: stage.order),
        )


@LAUNCH_RULES.rule(
    "SGL207",
    "adapter-modules-outside-pool",
    Severity.ERROR,
    engine=Engine.SGLANG,
    stage=Stage.FIRST_USE,
)
def check_adapter_modules_outside_pool(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter holds modules that no slot has room for.

    *What it checks*: the modules in each adapter's file against the targets of the server:
    `--lora-target-modules`, or else what the start-up adapters declare.

    *Why it matters*: the adapter is accepted, and the scheduler fails at the first request that
    uses it.

    *How to fix*: add the targets to `--lora-target-modules`.
    """
    pool = pool_targets(subject)
    if pool is None or not (subject.lora_enabled and subject.is_inkling):
        return
    missing: dict[str, str] = {}
    holders: list[AdapterFacts] = []
    for adapter in subject.adapters:
        declared = declared_targets(adapter) or []
        outside = landing_of(subject, adapter).outside.items()
        found = [(target, name) for name, target in outside if target not in declared]
        for target, name in found:
            missing.setdefault(target, module_name(name))
        holders += [adapter] if found else []
    if missing:
        target, module = next(iter(missing.items()))
        yield launch_defect(
            subject.launch,
            f"`{module}` of {format_adapters(holders)} needs the target `{target}`, the server "
            f"has {format_names(pool) or 'none'}: the scheduler fails at its first request",
            subject.at(_OPTION),
            options={_OPTION: _in_order({*pool, *missing})},
        )


@LAUNCH_RULES.rule(
    "SGL208", "adapter-head-not-declared", Severity.ERROR, engine=Engine.SGLANG, stage=Stage.SERVED
)
def check_adapter_head_not_declared(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter holds a head or an embedding that its `target_modules` list does not name.

    *What it checks*: adapters with `lm_head` or `embed_tokens` in the file and a `target_modules`
    list without it.

    *Why it matters*: SGLang drops it without a word above debug level; answers are then wrong.

    *How to fix*: add the name to the list, or set `target_modules` to `"all-linear"`.
    """
    for adapter in subject.adapters if subject.lora_enabled and subject.is_inkling else ():
        declared = declared_targets(adapter)
        if declared is None or not set(declared) <= set(POOL_TARGETS):
            continue
        for effect in with_cause(sglang_effects(subject, adapter), Cause.NOT_DECLARED)[:1]:
            target = "embed_tokens" if "embed_tokens" in effect.module else "lm_head"
            yield Defect(
                f"adapter `{adapter.name}` holds `{effect.module}` but its `target_modules` do not "
                f"name `{target}`: SGLang drops it",
                f"add `{target}` to its `target_modules`",
                adapter.at("target_modules"),
            )


@LAUNCH_RULES.rule(
    "SGL214", "one-half-of-experts", Severity.ERROR, engine=Engine.SGLANG, stage=Stage.SERVED
)
def check_one_half_of_experts(subject: LaunchSubject) -> Iterator[Defect]:
    """The server adapts one half of the MLPs only, so no expert at all.

    *What it checks*: targets with one of gate_up_proj and down_proj, on an Inkling. (An adapter
    that holds the other one is SGL207.)

    *Why it matters*: SGLang applies LoRA to experts only where both are targets. What an adapter
    has for its experts is then dropped without a word.

    *How to fix*: name both in `--lora-target-modules`.
    """
    pool = pool_targets(subject)
    halves = [name for name in HALVES if name in (pool or ())]
    if pool is None or len(halves) != 1 or not (subject.lora_enabled and subject.is_inkling):
        return
    (other,) = {*HALVES} - {*halves}
    if any(other in needed_targets(adapter) for adapter in subject.adapters):
        return
    effects = [e for adapter in subject.adapters for e in sglang_effects(subject, adapter)]
    if with_cause(effects, Cause.ONE_HALF) or not subject.adapters:
        yield launch_defect(
            subject.launch,
            f"the server has `{halves[0]}` alone, expected gate_up_proj and down_proj: "
            "no expert is adapted",
            subject.at(_OPTION),
            options={_OPTION: _in_order({*pool, *HALVES})},
        )


def _loaded_later(subject: LaunchSubject) -> list[AdapterFacts]:
    return [adapter for adapter in subject.adapters if not adapter.ref.at_startup]


def _in_order(targets: set[str]) -> str:
    return " ".join(name for name in POOL_TARGETS if name in targets)
