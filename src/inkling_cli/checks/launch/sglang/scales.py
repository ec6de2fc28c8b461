"""Rules over what SGLang ignores in an adapter's config: it scales every module by alpha / r."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.advice import advise_conversion
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.sglang.causes import Cause
from inkling_cli.checks.launch.sglang.loading import loading_fault
from inkling_cli.checks.launch.sglang.scaling import served_scale, wrongly_scaled
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage


@LAUNCH_RULES.rule(
    "SGL401", "rslora-ignored", Severity.ERROR, engine=Engine.SGLANG, stage=Stage.SERVED
)
def check_rslora_ignored(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter uses rsLoRA, which SGLang ignores.

    *What it checks*: `use_rslora` in each adapter's config, for ranks above 1.

    *Why it matters*: SGLang scales by alpha / r in place of alpha / √r: the adapter has too little
    effect, by a factor of √r, and nothing says so.

    *How to fix*: `inkling convert-adapter DIR --to sglang -o OUT` folds the scale into the weights.
    """
    for adapter, modules in _wrongly_scaled(subject, Cause.RSLORA):
        right, wrong = adapter.config.scaling_of(modules[0]), served_scale(adapter.config)
        yield Defect(
            f"adapter `{adapter.name}` uses rsLoRA: its scale is {right:.4g}, "
            f"SGLang applies {wrong:.4g}",
            _remedy(adapter),
            adapter.at("use_rslora"),
        )


@LAUNCH_RULES.rule(
    "SGL402", "alpha-pattern-ignored", Severity.ERROR, engine=Engine.SGLANG, stage=Stage.SERVED
)
def check_alpha_pattern_ignored(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter has an alpha of its own for some modules, which SGLang ignores.

    *What it checks*: `alpha_pattern` in each adapter's config, for keys that match a module of the
    file and have another value than `lora_alpha`.

    *Why it matters*: SGLang applies `lora_alpha` to all modules: those are scaled wrongly, and
    nothing says so.

    *How to fix*: `inkling convert-adapter DIR --to sglang -o OUT` folds the scale into the weights.
    """
    for adapter, modules in _wrongly_scaled(subject, Cause.ALPHA_PATTERN):
        config = adapter.config
        key = config.alpha_pattern.find_key(modules[0])
        yield Defect(
            f"adapter `{adapter.name}` has alpha {config.alpha_of(modules[0]):g} for `{key}`, "
            f"SGLang applies `lora_alpha` {config.alpha:g}",
            _remedy(adapter),
            adapter.at("alpha_pattern"),
        )


@LAUNCH_RULES.rule("SGL403", "rank-pattern-ignored", Severity.ERROR, engine=Engine.SGLANG)
def check_rank_pattern_ignored(subject: LaunchSubject) -> Iterator[Defect]:
    """An adapter has a rank of its own for some modules, which SGLang ignores.

    *What it checks*: `rank_pattern` in each adapter's config, for keys that match a module of the
    file and have another value than `r`.

    *Why it matters*: SGLang scales these modules by the wrong rank and expects tensors of rank `r`:
    it fails at the first request, or the answers are wrong.

    *How to fix*: `inkling convert-adapter DIR --to sglang -o OUT` brings all modules to one rank.
    """
    for adapter, modules in _wrongly_scaled(subject, Cause.RANK_PATTERN):
        config, fault = adapter.config, loading_fault(subject, adapter)
        key = config.rank_pattern.find_key(modules[0])
        yield Defect(
            f"adapter `{adapter.name}` has rank {config.rank_of(modules[0])} for `{key}`, "
            f"SGLang expects `r` {config.rank}",
            _remedy(adapter),
            adapter.at("rank_pattern"),
            stage=fault.stage if fault else Stage.SERVED,
        )


def _wrongly_scaled(
    subject: LaunchSubject, cause: Cause
) -> Iterator[tuple[AdapterFacts, list[str]]]:
    """Yield the adapters of which modules get a wrong scale for a cause, with these modules."""
    for adapter in subject.adapters if subject.lora_enabled else ():
        if modules := wrongly_scaled(adapter, cause):
            yield adapter, modules


def _remedy(adapter: AdapterFacts) -> str:
    return advise_conversion(adapter, Engine.SGLANG)
