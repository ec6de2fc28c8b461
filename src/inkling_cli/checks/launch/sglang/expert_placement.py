"""The rule over where an SGLang server keeps its experts, which LoRA's runners need in place."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.sglang.moe_runners import MARLIN, is_lora_runner, runner_of
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage

_ERROR, _SGLANG, _STAGE = Severity.ERROR, Engine.SGLANG, Stage.SERVER_ARGS
_RUNNER = "--moe-runner-backend"


@LAUNCH_RULES.rule("SGL505", "experts-not-in-place", _ERROR, engine=_SGLANG, stage=_STAGE)
def check_experts_not_in_place(subject: LaunchSubject) -> Iterator[Defect]:
    """A LoRA runner needs every expert in its place, and something moves them.

    *What it checks*: beside a `lora_*` runner, or `experimental_sgl_marlin` with expert
    parallelism: `--moe-a2a-backend`, `--enable-eplb`, `--init-expert-location`, redundant experts
    and elastic expert parallelism.

    *Why it matters*: SGLang refuses to start.

    *How to fix*: leave the option out.
    """
    is_marlin = runner_of(subject) == MARLIN and (subject.launch.integer("--ep-size") or 1) > 1
    if not (is_lora_runner(subject) or is_marlin) or not subject.lora_enabled:
        return
    for name in _moving_options(subject, is_marlin):
        yield launch_defect(
            subject.launch,
            f"`{name}` beside `{_RUNNER} {runner_of(subject)}`, which needs every expert in place",
            subject.at(name),
            remove=[name],
        )


def _moving_options(subject: LaunchSubject, is_marlin: bool) -> Iterator[str]:
    launch = subject.launch
    texts = [("--moe-a2a-backend", "none"), ("--init-expert-location", "trivial")]
    texts.append(("--elastic-ep-backend" if is_marlin else "--elastic-ep-join-mode", ""))
    for name, harmless in texts:
        value = launch.text(name)
        if value and value != harmless and not is_unknown(value):
            yield name
    if launch.is_on("--enable-eplb"):
        yield "--enable-eplb"
    redundant = launch.integer("--ep-num-redundant-experts") or 0
    if redundant > 0 or (is_marlin and redundant):
        yield "--ep-num-redundant-experts"
    if is_marlin and launch.is_on("--enable-elastic-expert-backup"):
        yield "--enable-elastic-expert-backup"
