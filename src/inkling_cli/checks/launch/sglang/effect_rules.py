"""Rules over what SGLang does with the modules of an adapter that it accepts."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from inkling_cli.checks.effect import Effect, Fate, format_share, with_cause
from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Location, Severity
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.advice import advise_conversion, launch_defect
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.sglang.causes import TOLD_BY, TOLD_BY_REST, Cause
from inkling_cli.checks.launch.sglang.effects import sglang_effects
from inkling_cli.checks.launch.sglang.loading import loading_fault
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.launch.unsound import find_unsound
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

_ERROR, _SGLANG, _SERVED = Severity.ERROR, Engine.SGLANG, Stage.SERVED


@LAUNCH_RULES.rule("SGA001", "sink-experts-dropped", _ERROR, engine=_SGLANG, stage=_SERVED)
def check_sink_experts_dropped(subject: LaunchSubject) -> Iterator[Defect]:
    """Shared-expert modules under vLLM's name, which SGLang never applies.

    *What it checks*: modules named `mlp.sink_experts.…`.

    *Why it matters*: SGLang accepts the file and drops them without a message.

    *How to fix*: `inkling convert-adapter ADAPTER --to sglang -o OUT` renames them.
    """
    for adapter, found in _with_cause(subject, Cause.SINK_NAME):
        yield _defect(
            adapter,
            found,
            f"SGLang drops {format_share(found, sglang_effects(subject, adapter))} silently, "
            "it looks for `shared_experts` where they say `sink_experts`",
        )


@LAUNCH_RULES.rule("SGA002", "dense-rows-interleaved", _ERROR, engine=_SGLANG, stage=_SERVED)
def check_dense_rows_misread_by_sglang(subject: LaunchSubject) -> Iterator[Defect]:
    """Rows of the dense gate_up lora_B that SGLang adds to the wrong channels.

    *What it checks*: dense gate_up modules whose lora_B rows are interleaved, as vLLM needs them.
    SGLang de-interleaves its base and reads [gate; up].

    *Why it matters*: the delta lands on the wrong channels without a message.

    *How to fix*: `inkling convert-adapter ADAPTER --to sglang -o OUT`.
    """
    for adapter, found in _with_cause(subject, Cause.INTERLEAVED):
        yield _defect(
            adapter,
            found,
            f"SGLang misapplies {format_share(found, sglang_effects(subject, adapter))}: "
            "it reads lora_B rows as [gate; up], on disk they are g0, u0, g1, u1, …",
        )


@LAUNCH_RULES.rule(
    "SGL114",
    "adapter-without-enable-lora",
    _ERROR,
    engine=_SGLANG,
    stage=Stage.DYNAMIC_LOAD,
)
def check_adapter_without_enable_lora(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter is to be loaded while the server runs, and LoRA is not enabled.

    *What it checks*: adapters that are not in `--lora-paths`, without `--enable-lora`.

    *Why it matters*: SGLang refuses to load them, and requests that name one fail.

    *How to fix*: add `--enable-lora`.
    """
    if subject.lora_enabled or not subject.launch.adapters:
        return
    names = format_names([ref.name for ref in subject.launch.adapters])
    verb = "is" if len(subject.launch.adapters) == 1 else "are"
    yield launch_defect(
        subject.launch,
        f"{names} {verb} to be loaded, expected `--enable-lora`",
        subject.at("--enable-lora"),
        options={"--enable-lora": ""},
    )


@LAUNCH_RULES.rule("SGL218", "modules-not-applied", _ERROR, engine=_SGLANG, stage=_SERVED)
def check_modules_not_applied(subject: LaunchSubject) -> Iterator[Defect]:
    """Modules that SGLang accepts and drops, or takes for something else.

    *What it checks*: where every tensor of an adapter ends up: in no slot at all, in the slot of
    another module, cut to fit, or beside experts that stay empty. (Dropped for their names or
    targets, or scaled wrongly: the other rules. What is wrong for every engine is LCH205.)

    *Why it matters*: the server answers without these modules, or with another effect than they
    were trained for, and nothing says so.

    *How to fix*: export the adapter again, without what SGLang has no place for.
    """
    for adapter, found in _with_cause(subject, *TOLD_BY_REST):
        if loading_fault(subject, adapter):
            continue
        told = {finding.code for finding in find_unsound(subject, adapter)}
        found = [effect for effect in found if not told & set(TOLD_BY[Cause(effect.cause)])]
        found.sort(key=lambda effect: (effect.fate, effect.reason))
        for (fate, reason), group in groupby(found, lambda effect: (effect.fate, effect.reason)):
            same = list(group)
            verb = "drops" if fate is Fate.DROPPED else "misapplies"
            share = format_share(same, sglang_effects(subject, adapter))
            defect = _defect(adapter, same, f"SGLang {verb} {share}: {reason}")
            yield replace(defect, help=_remedy(adapter, same))


def _remedy(adapter: AdapterFacts, found: list[Effect]) -> str:
    if found[0].cause == Cause.FURTHER_FILE:
        return f"move the further file out of `{adapter.folder}`"
    return "export the adapter again, without what SGLang has no place for"


@LAUNCH_RULES.rule("SGL307", "shared-experts-without-sink", _ERROR, engine=_SGLANG, stage=_SERVED)
def check_shared_experts_without_sink(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter holds shared experts, and the model's config does not say that they are sinks.

    *What it checks*: `shared_expert_sink` in the model's config.json, which SGLang takes for false
    where it is missing.

    *Why it matters*: SGLang then builds one dense MLP of the shared experts and drops what an
    adapter has for them, without a word.

    *How to fix*: take config.json from the model's publisher.
    """
    for adapter, found in _with_cause(subject, Cause.NO_SINK):
        share = format_share(found, sglang_effects(subject, adapter))
        yield Defect(
            f"adapter `{adapter.name}`: SGLang drops {share}: "
            "`shared_expert_sink` of the model is not true",
            "take `config.json` from the model's publisher, where it says `true`",
            Location(subject.model.config_path or "", key="shared_expert_sink"),
        )


def _with_cause(
    subject: LaunchSubject, *causes: Cause
) -> Iterator[tuple[AdapterFacts, list[Effect]]]:
    """Yield the adapters of which modules have one of the causes, with these modules' effects."""
    for adapter in subject.adapters if subject.lora_enabled and subject.is_inkling else ():
        if found := with_cause(sglang_effects(subject, adapter), *causes):
            yield adapter, found


def _defect(adapter: AdapterFacts, found: list[Effect], message: str) -> Defect:
    return Defect(
        f"adapter `{adapter.name}`: {message}",
        advise_conversion(adapter, _SGLANG),
        Location(str(adapter.adapter.file.path), key=found[0].module),
    )
