"""Rules over what a launch refers to: the model, config files, the engine's version."""

from collections.abc import Iterator

from inkling_cli.checks.engine import Engine, parse_version
from inkling_cli.checks.finding import Location, Severity
from inkling_cli.checks.launch.launch import LaunchForm, ProblemKind
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.adapter.model_spec import MULTIMODAL_TYPES, TEXT_TYPES


@LAUNCH_RULES.rule("LCH101", "model-not-found", Severity.INFO)
def check_model_not_found(subject: LaunchSubject) -> Iterator[Defect]:
    """The base model's config.json is not on this machine.

    *What it checks*: whether the model that the launch names (or `--model`) is a folder with a
    config.json.

    *Why it matters*: nothing is downloaded. Without the config, whether the model is an Inkling is
    told by its name and by the adapters alone, and sizes are not checked.

    *How to fix*: pass the model's folder or config.json with `--model`.
    """
    model = subject.model
    if model.ref is None or model.config_path is not None or is_unknown(model.ref):
        return
    unchecked = "its config" if model.is_inkling else "whether it is an Inkling"
    yield Defect(
        f"`{model.ref}` is not on this machine; {unchecked} was not checked",
        "pass its config with `--model DIR`",
        model.location,
    )


@LAUNCH_RULES.rule("LCH102", "model-config-unreadable", Severity.ERROR)
def check_model_config_unreadable(subject: LaunchSubject) -> Iterator[Defect]:
    """The base model's config.json cannot be read, or is not a supported Inkling's.

    *What it checks*: that config.json is a JSON object and, for an Inkling, that its sizes are all
    there.

    *Why it matters*: the engine needs it to start; here the checks that need sizes were left out.

    *How to fix*: fetch the model again, or point `--model` at the right folder.
    """
    if subject.model.problem is not None:
        location = Location(subject.model.config_path)
        remedy = "fetch the model again, or point `--model` at the right folder"
        known = subject.model.config.get("model_type") in MULTIMODAL_TYPES + TEXT_TYPES
        is_unread = subject.engine is Engine.SGLANG and not known
        stage = Stage.SERVER_ARGS if is_unread else None
        if subject.engine is Engine.VLLM and not subject.model.config:
            stage = Stage.ENGINE_CONFIG
        yield Defect(subject.model.problem, remedy, location, stage=stage)


@LAUNCH_RULES.rule("LCH103", "model-not-inkling", Severity.INFO)
def check_model_not_inkling(subject: LaunchSubject) -> Iterator[Defect]:
    """The base model is not an Inkling.

    *What it checks*: `architectures` and `model_type` of the model's config.json.

    *Why it matters*: the rules about Inkling were left out; those about LoRA in general were
    applied.

    *How to fix*: nothing to fix if the model is meant. Otherwise point the launch at the Inkling.
    """
    if subject.model.is_inkling is False:
        names = ", ".join(f"`{name}`" for name in subject.model.architectures) or "no architecture"
        yield Defect(
            f"`{subject.model.config_path}` describes {names}, not an Inkling; "
            "the rules about Inkling were left out",
            location=Location(subject.model.config_path, key="architectures"),
        )


@LAUNCH_RULES.rule("LCH104", "no-model", Severity.ERROR)
def check_no_model(subject: LaunchSubject) -> Iterator[Defect]:
    """The launch names no model.

    *What it checks*: that a model is given, as an argument or by `--model` / `--model-path`.

    *Why it matters*: SGLang refuses to start. vLLM starts, with a small default model of its own.

    *How to fix*: name the model: `vllm serve MODEL …`, `sglang serve MODEL …`.
    """
    launch = subject.launch
    has_config = any(launch.problems_of(ProblemKind.MISSING_CONFIG))
    has_unknown = any(launch.problems_of(ProblemKind.UNKNOWN_SHELL_VALUE))
    has_command = launch.form is not LaunchForm.ENV_FILE
    if launch.model is None and has_command and not has_config and not has_unknown:
        vllm = subject.engine is Engine.VLLM
        effect = "vLLM serves its own default" if vllm else "SGLang does not start"
        yield Defect(
            f"the launch names no model, expected one; without it {effect}",
            f"`{' '.join(launch.program)} MODEL …`"
            if launch.program[-1] == "serve"
            else f"`{' '.join(launch.program)} {subject.engine.model_option} MODEL …`",
            Location(launch.location.file, launch.location.line, "model"),
            stage=Stage.SERVED if vllm else Stage.COMMAND_LINE,
        )


@LAUNCH_RULES.rule("LCH105", "config-file-not-found", Severity.INFO)
def check_config_file_not_found(subject: LaunchSubject) -> Iterator[Defect]:
    """The file of `--config` is not on this machine.

    *What it checks*: whether the file that the launch gives to `--config` is there.

    *Why it matters*: the options in it were not checked, and options that seem to be missing may be
    in it.

    *How to fix*: run `inkling check-config` where the file lies.
    """
    for problem in subject.launch.problems_of(ProblemKind.MISSING_CONFIG):
        yield Defect(
            f"`{problem.text}` is not on this machine; the options in it were not checked",
            "run `inkling check-config` where it lies",
            problem.location,
        )


@LAUNCH_RULES.rule("LCH106", "engine-version-untested", Severity.INFO)
def check_engine_version_untested(subject: LaunchSubject) -> Iterator[Defect]:
    """The engine's version is none of those whose behaviour the rules describe.

    *What it checks*: `--engine-version`, or the tag of the container image, against the known
    versions.

    *Why it matters*: options and limits change between versions: a finding may no longer hold, and
    there may be others.

    *How to fix*: read the findings with care, or check with a known version.
    """
    described = subject.described_version
    if parse_version(subject.version) != parse_version(described):
        yield Defect(
            f"the launch is for {subject.engine.display_name} {subject.version}, "
            f"the rules describe {described}",
            location=Location(subject.launch.location.file, subject.launch.location.line),
        )


@LAUNCH_RULES.rule("LCH107", "no-command", Severity.INFO)
def check_no_command(subject: LaunchSubject) -> Iterator[Defect]:
    """An env file sets variables and starts nothing.

    *What it checks*: whether the launch is an env file alone.

    *Why it matters*: only the variables were checked; model, options and adapters are not known.

    *How to fix*: pass the file beside the launch: `inkling check-config --env-file FILE -- …`. A
    compose file finds its env files by itself.
    """
    if subject.launch.form is LaunchForm.ENV_FILE:
        file = subject.launch.location.file
        yield Defect(
            f"`{file}` sets variables and starts no server; only the variables were checked",
            f"`inkling check-config --env-file {file} -- {subject.engine.value} serve …`",
            Location(file, 1),
        )
