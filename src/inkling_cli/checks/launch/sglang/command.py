"""Rules over how SGLang takes its options: spelling, config files, and what switches LoRA on."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Change, Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.launch import ProblemKind
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

_LORA_OPTIONS = (
    "--max-lora-rank",
    "--lora-target-modules",
    "--max-loras-per-batch",
    "--max-loaded-loras",
    "--lora-backend",
    "--lora-eviction-policy",
    "--max-lora-chunk-size",
    "--experts-shared-outer-loras",
    "--lora-use-virtual-experts",
    "--lora-strict-loading",
    "--enable-lora-overlap-loading",
    "--lora-drain-wait-threshold",
)


@LAUNCH_RULES.rule(
    "SGL001", "underscore-in-option", Severity.ERROR, engine=Engine.SGLANG, stage=Stage.COMMAND_LINE
)
def check_underscore_in_option(subject: LaunchSubject) -> Iterator[Defect]:
    """An option is spelled with underscores.

    *What it checks*: options like `--max_lora_rank`, on the command line and as keys of a
    `--config` file.

    *Why it matters*: SGLang refuses to start: unlike vLLM it knows only the spelling with dashes.

    *How to fix*: write dashes.
    """
    for problem in subject.launch.problems_of(ProblemKind.UNDERSCORE_OPTION):
        spelled = problem.location.key or problem.text
        dashed = spelled.replace("_", "-")
        uses = [use for use in subject.launch.uses if use.spelled == problem.text]
        value = " ".join(uses[-1].values) if uses else ""
        yield Defect(
            f"`{spelled}` is spelled with underscores, SGLang knows `{dashed}`",
            f"write `{dashed}`",
            problem.location,
            {spelled: None, dashed: value or "true"},
            Change(respell={problem.text: problem.text.replace("_", "-")}),
        )


@LAUNCH_RULES.rule(
    "SGL002",
    "option-not-in-config-files",
    Severity.ERROR,
    engine=Engine.SGLANG,
    stage=Stage.COMMAND_LINE,
)
def check_option_not_in_config_files(subject: LaunchSubject) -> Iterator[Defect]:
    """A config file holds an option that SGLang takes on the command line only.

    *What it checks*: `lora-paths`, `experts-shared-outer-loras` and the other options with a
    `--no-` form, as keys of a YAML file.

    *Why it matters*: SGLang refuses to start: its reader of config files cannot write these
    options.

    *How to fix*: take the key out of the file and give the option on the command line.
    """
    for problem in subject.launch.problems_of(ProblemKind.UNREADABLE_IN_CONFIG):
        (name,) = problem.detail
        values = " ".join(subject.launch.values(name))
        yield Defect(
            f"`{problem.text}` stands in a config file, where SGLang cannot read it",
            f"take it out and start with `sglang serve --config {problem.location.file} "
            f"{f'{name} {values}'.rstrip()}`",
            problem.location,
        )


@LAUNCH_RULES.rule("SGL003", "lora-options-without-lora", Severity.WARNING, engine=Engine.SGLANG)
def check_lora_options_without_lora(subject: LaunchSubject) -> Iterator[Defect]:
    """LoRA options are given but LoRA is not enabled.

    *What it checks*: options that size or shape LoRA, with neither `--enable-lora` nor
    `--lora-paths`.

    *Why it matters*: SGLang ignores them without a word, and requests that name an adapter fail.

    *How to fix*: add `--enable-lora`, or name adapters with `--lora-paths`.
    """
    unused = [name for name in _LORA_OPTIONS if subject.launch.use(name)]
    if unused and not subject.lora_enabled:
        yield launch_defect(
            subject.launch,
            f"{format_names(unused)} {'has' if len(unused) == 1 else 'have'} no effect: "
            "neither `--enable-lora` nor `--lora-paths` is given",
            subject.at(unused[0]),
            options={"--enable-lora": ""},
        )
