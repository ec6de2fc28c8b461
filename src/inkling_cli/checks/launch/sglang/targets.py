"""Rules over which modules an SGLang server adapts, and by which backend."""

from collections.abc import Iterator
from dataclasses import replace

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.options.table import option_table
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.sglang.limits import num_slots
from inkling_cli.checks.launch.sglang.pool import adapts_experts, needed_targets
from inkling_cli.checks.launch.sglang.served_model import has_sink, served_spec
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.sglang_targets import POOL_TARGETS, normalise
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

_OPTION = "--lora-target-modules"


@LAUNCH_RULES.rule(
    "SGL201",
    "rank-and-targets-missing",
    Severity.ERROR,
    engine=Engine.SGLANG,
    stage=Stage.SERVER_ARGS,
)
def check_rank_and_targets_missing(subject: LaunchSubject) -> Iterator[Defect]:
    """LoRA is enabled without adapters, and rank or targets are not given.

    *What it checks*: `--enable-lora` without `--lora-paths`: then both `--max-lora-rank` and
    `--lora-target-modules` are needed.

    *Why it matters*: SGLang refuses to start: it sizes its slots by the start-up adapters or by
    these two.

    *How to fix*: give both, for the largest adapter that will be loaded.
    """
    launch = subject.launch
    if not subject.lora_enabled or launch.values("--lora-paths"):
        return
    missing = [] if launch.text("--max-lora-rank") not in (None, "0") else ["--max-lora-rank"]
    missing += [] if launch.values(_OPTION) else [_OPTION]
    if missing:
        ranks = [adapter.config.rank for adapter in subject.adapters]
        values = {"--max-lora-rank": str(max(ranks, default="RANK")), _OPTION: "all"}
        found = launch_defect(
            subject.launch,
            f"`--lora-paths` names no adapter, so {format_names(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} needed",
            subject.at(missing[0]),
            options={name: values[name] for name in missing},
        )
        is_guess = "--max-lora-rank" in missing and not ranks
        yield replace(found, fix=None, change=None) if is_guess else found


@LAUNCH_RULES.rule(
    "SGL202",
    "all-beside-other-targets",
    Severity.ERROR,
    engine=Engine.SGLANG,
    stage=Stage.SERVER_ARGS,
)
def check_all_beside_other_targets(subject: LaunchSubject) -> Iterator[Defect]:
    """`--lora-target-modules` holds `all` and other names.

    *What it checks*: that `all` stands alone.

    *Why it matters*: SGLang refuses to start with LoRA enabled.

    *How to fix*: write `--lora-target-modules all`, or the names without `all`.
    """
    given = subject.launch.values(_OPTION)
    if subject.lora_enabled and "all" in given and len(set(given)) > 1:
        others = [name for name in dict.fromkeys(given) if name != "all"]
        yield launch_defect(
            subject.launch,
            f"`{_OPTION}` holds `all` beside {format_names(others)}, expected `all` alone",
            subject.at(_OPTION),
            options={_OPTION: "all"},
        )


@LAUNCH_RULES.rule("SGL203", "target-not-a-choice", Severity.ERROR, engine=Engine.SGLANG)
def check_target_not_a_choice(subject: LaunchSubject) -> Iterator[Defect]:
    """`--lora-target-modules` holds a name that SGLang does not take or an Inkling does not have.

    *What it checks*: each name against SGLang's list and, on an Inkling, against the modules that
    can be adapted: qkvr, wo_ud, gate_up_proj, down_proj, embed_tokens, lm_head.

    *Why it matters*: SGLang refuses to start. The names in an adapter's files (`wq_du`, `w1`) are
    not what this option takes, and `q_proj` is another model's.

    *How to fix*: write the runtime names, or `all`.
    """
    choices = option_table(Engine.SGLANG).spec(_OPTION).choices
    names = [name for name in dict.fromkeys(subject.launch.values(_OPTION)) if not is_unknown(name)]
    unknown = [name for name in names if name not in choices]
    foreign = [name for name in names if name not in unknown and not _is_pool_target(name)]
    defects = [(unknown, "SGLang does not know", Stage.COMMAND_LINE)]
    if subject.lora_enabled and subject.is_inkling:
        defects.append((foreign, "an Inkling does not have", Stage.STARTUP))
    for wrong, why, stage in defects:
        if wrong:
            yield launch_defect(
                subject.launch,
                f"`{_OPTION}` holds {format_names(wrong)}, which {why}",
                subject.at(_OPTION),
                options={_OPTION: _needed_by_all(subject) or "all"},
                stage=stage,
            )


@LAUNCH_RULES.rule(
    "SGL204",
    "backend-without-shared-experts",
    Severity.ERROR,
    engine=Engine.SGLANG,
    stage=Stage.STARTUP,
)
def check_backend_without_shared_experts(subject: LaunchSubject) -> Iterator[Defect]:
    """`--lora-backend` cannot adapt an Inkling's shared experts for several adapters.

    *What it checks*: the backend (`csgmv` where it is not given) when both gate_up_proj and
    down_proj are targets and there is more than one slot, on an Inkling that has shared experts.

    *Why it matters*: SGLang loads the model and then stops. Attention alone works with every
    backend.

    *How to fix*: add `--lora-backend triton`.
    """
    backend = subject.launch.text("--lora-backend")
    if not (subject.lora_enabled and subject.is_inkling) or backend in ("triton", "triton_v2"):
        return
    if num_slots(subject) > 1 and adapts_experts(subject) and _has_shared_experts(subject):
        shown = f"is `{backend}`" if backend else "is not given and counts as `csgmv`"
        yield launch_defect(
            subject.launch,
            f"`--lora-backend` {shown}, which cannot adapt shared experts in "
            f"{num_slots(subject)} slots; expected `triton`",
            subject.at("--lora-backend"),
            options={"--lora-backend": "triton"},
        )


def _has_shared_experts(subject: LaunchSubject) -> bool:
    """Whether some layer has shared experts as SGLang means them; true if sizes are not known."""
    spec = served_spec(subject)
    return spec is None or (has_sink(spec) and not all(layer.is_dense for layer in spec.layers))


def _is_pool_target(name: str) -> bool:
    return name == "all" or normalise([name])[0] in POOL_TARGETS


def _needed_by_all(subject: LaunchSubject) -> str:
    needed = {target for adapter in subject.adapters for target in needed_targets(adapter)}
    return " ".join(name for name in POOL_TARGETS if name in needed)
