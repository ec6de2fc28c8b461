"""Rules over the words of a launch that its engine's argument parser cannot take as meant."""

import json
from collections.abc import Iterator

from inkling_cli.checks.engine import Engine, parse_version
from inkling_cli.checks.finding import Change, Severity
from inkling_cli.checks.launch.launch import LaunchForm, ProblemKind
from inkling_cli.checks.launch.options.table import option_table
from inkling_cli.checks.launch.parse.traced import unknown_text
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names


@LAUNCH_RULES.rule("LCH001", "misspelt-option", Severity.ERROR, stage=Stage.COMMAND_LINE)
def check_misspelt_option(subject: LaunchSubject) -> Iterator[Defect]:
    """An option that the engine does not have looks like one that it has.

    *What it checks*: every option against all options of the engine's known version; unique
    abbreviations count as the option they abbreviate. This rule speaks where a known option is
    near.

    *Why it matters*: the server refuses to start with an option that it does not know.

    *How to fix*: write the option as the engine spells it.
    """
    for problem in subject.launch.problems_of(ProblemKind.MISSPELT_OPTION):
        nearest = _as_written(subject, *problem.detail)
        yield Defect(
            f"`{_as_written(subject, problem.text)}` is not an option of "
            f"{_engine_of(subject)}, the nearest is `{nearest}`",
            f"write `{nearest}` if that is meant",
            problem.location,
        )


@LAUNCH_RULES.rule("LCH002", "unknown-option", Severity.ERROR, stage=Stage.COMMAND_LINE)
def check_unknown_option(subject: LaunchSubject) -> Iterator[Defect]:
    """An option is neither known nor near a known one.

    *What it checks*: every option against all options of the engine's known version. This rule
    speaks where no known option is near. For a version that is not known it is a warning.

    *Why it matters*: the known version refuses to start with it, unless a plugin adds it. What the
    option does was not checked.

    *How to fix*: look it up in the engine's `--help`, or remove it.
    """
    is_known = parse_version(subject.version) == parse_version(subject.described_version)
    for problem in subject.launch.problems_of(ProblemKind.UNKNOWN_OPTION):
        yield Defect(
            f"`{_as_written(subject, problem.text)}` is not an option of "
            f"{_engine_of(subject)}; what it does was not checked",
            "look it up in the engine's `--help`, or remove it",
            problem.location,
            severity=None if is_known else Severity.WARNING,
        )


@LAUNCH_RULES.rule("LCH003", "ambiguous-option", Severity.ERROR, stage=Stage.COMMAND_LINE)
def check_ambiguous_option(subject: LaunchSubject) -> Iterator[Defect]:
    """An abbreviated option fits several options.

    *What it checks*: options that are not spelled out: the engines accept the beginning of an
    option as long as it fits exactly one.

    *Why it matters*: the server refuses to start.

    *How to fix*: write the option out.
    """
    for problem in subject.launch.problems_of(ProblemKind.AMBIGUOUS_OPTION):
        yield Defect(
            f"`{problem.text}` is short for {len(problem.detail)} options, expected one: "
            + format_names(problem.detail),
            "write the option in full",
            problem.location,
        )


@LAUNCH_RULES.rule("LCH004", "option-without-value", Severity.ERROR, stage=Stage.COMMAND_LINE)
def check_option_without_value(subject: LaunchSubject) -> Iterator[Defect]:
    """An option that takes a value has none.

    *What it checks*: options that take a value and stand at the end of the launch or before another
    option.

    *Why it matters*: the server refuses to start.

    *How to fix*: give the value, or remove the option.
    """
    table = option_table(subject.engine, subject.version)
    for use in subject.launch.uses:
        if "." not in use.name and not use.values and table.spec(use.name).needs_value:
            yield Defect(
                f"`{use.spelled}` has no value, expected at least one after it",
                f"write `{use.spelled} VALUE`",
                use.location,
            )
    for problem in subject.launch.problems_of(ProblemKind.MISSING_VALUE):
        yield Defect(
            f"`{problem.text}` has no value, expected one after it",
            f"write `{problem.text} VALUE`",
            problem.location,
        )


@LAUNCH_RULES.rule("LCH005", "switch-with-value", Severity.ERROR, stage=Stage.COMMAND_LINE)
def check_switch_with_value(subject: LaunchSubject) -> Iterator[Defect]:
    """A switch has a value: `--enable-lora=true`.

    *What it checks*: `=` after an option that takes no value.

    *Why it matters*: the server refuses to start. (After a space the value is a stray argument,
    LCH006.)

    *How to fix*: write the switch alone; to turn it off write its opposite or leave it out.
    """
    for problem in subject.launch.problems_of(ProblemKind.UNEXPECTED_VALUE):
        (switch,) = problem.detail
        means_on = problem.text.partition("=")[2].lower() in ("true", "1", "on", "yes")
        yield Defect(
            f"`{problem.text}` gives a value to a switch, which takes none",
            f"write `{switch}`"
            if means_on
            else f"write `{switch}` to switch it on, else remove it",
            problem.location,
            {problem.text: None, switch: "true"} if means_on else None,
            Change(respell={problem.text: switch}) if means_on else None,
        )


@LAUNCH_RULES.rule("LCH006", "stray-argument", Severity.ERROR, stage=Stage.COMMAND_LINE)
def check_stray_argument(subject: LaunchSubject) -> Iterator[Defect]:
    """A word of the launch belongs to no option.

    *What it checks*: words that are neither options nor values of options nor the model. vLLM takes
    one such word as the model wherever it stands, `sglang serve` only as the first.

    *Why it matters*: the server refuses to start.

    *How to fix*: remove the word or put its option before it. A switch takes no value:
    `--enable-lora`, not `--enable-lora true`.
    """
    for problem in subject.launch.problems_of(ProblemKind.STRAY_ARGUMENT):
        yield Defect(
            f"`{problem.text}` is neither an option nor an option's value",
            "remove it, or put its option before it",
            problem.location,
        )


@LAUNCH_RULES.rule("LCH010", "variable-not-exported", Severity.WARNING)
def check_variable_not_exported(subject: LaunchSubject) -> Iterator[Defect]:
    """A script assigns an engine's variable without exporting it.

    *What it checks*: assignments of `VLLM_…`, `SGLANG_…` and `INKLING_…` on a line of their own, in
    a script without `export` of that name and without `set -a`.

    *Why it matters*: the server does not see the value: a shell passes on only what is exported.

    *How to fix*: write `export` before it, or put it in front of the server's command on the same
    line.
    """
    for name, variable in subject.launch.unseen.items():
        if name.startswith(("VLLM_", "SGLANG_", "INKLING_")):
            yield Defect(
                f"`{name}={variable.value}` is not exported, so the server does not see it",
                f"`export {name}={variable.value}`",
                variable.location,
                {name: variable.value},
                Change(variables={name: variable.value}),
            )


@LAUNCH_RULES.rule("LCH011", "adapter-entry-malformed", Severity.ERROR)
def check_adapter_entry_malformed(subject: LaunchSubject) -> Iterator[Defect]:
    """A value of the adapter option names no adapter.

    *What it checks*: each value of `--lora-modules` (`name=path`, or JSON with `name` and `path`)
    or `--lora-paths` (a path, `name=path`, or JSON with `lora_name` and `lora_path`).

    *Why it matters*: the server refuses to start. A model written after a list of adapters is taken
    for an adapter; a mapping in a list of a vLLM config file is not turned into JSON.

    *How to fix*: write `name=path`. Put the model before the adapters.
    """
    for problem in subject.launch.problems_of(ProblemKind.MALFORMED_ADAPTER):
        option = subject.engine.adapters_option
        yield Defect(
            f"`{problem.text}` is not an entry of `{option}`: {problem.detail[0]}",
            f"write `{option} NAME=PATH`; the model goes before it",
            problem.location,
            stage=_entry_stage(subject, problem.text),
        )


def _entry_stage(subject: LaunchSubject, text: str) -> Stage:
    """Return where a malformed adapter ends: SGLang takes any text but JSON for a path at first.

    Of JSON its parser wants both keys and no more: what they hold is looked at when it loads.
    """
    if subject.engine is not Engine.SGLANG:
        return Stage.COMMAND_LINE
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return Stage.STARTUP
    try:
        keys = set(json.loads(text))
    except (ValueError, RecursionError):
        return Stage.COMMAND_LINE
    return Stage.STARTUP if {"lora_name", "lora_path"} <= keys else Stage.COMMAND_LINE


@LAUNCH_RULES.rule("LCH012", "unknown-shell-value", Severity.INFO)
def check_unknown_shell_value(subject: LaunchSubject) -> Iterator[Defect]:
    """The launch uses a shell variable whose value is not known here.

    *What it checks*: `$NAME`, `$(command)` and `"$@"` in the server's command, where the script
    does not assign them and they are not in the environment given.

    *Why it matters*: what they stand for was not checked.

    *How to fix*: pass the value with `--env NAME=VALUE`, or the whole environment with
    `--inherit-env`.
    """
    for problem in subject.launch.problems_of(ProblemKind.UNKNOWN_SHELL_VALUE):
        name = problem.text if problem.text[:1].isalnum() else ""
        yield Defect(
            f"`{unknown_text(problem.text).text}` has no value here; what it stands for was not "
            "checked",
            f"pass it with `--env {name}=VALUE`" if name.isidentifier() else None,
            problem.location,
        )


def _as_written(subject: LaunchSubject, option: str) -> str:
    """Return an option as the launch's form spells it: a config file has no dashes in front."""
    return option.lstrip("-") if subject.launch.form is LaunchForm.CONFIG else option


def _engine_of(subject: LaunchSubject) -> str:
    return f"{subject.engine.display_name} {subject.described_version}"
