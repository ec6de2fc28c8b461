"""`inkling check-config`: whether a launch of vLLM or SGLang serves its adapters as meant."""

import os
from collections.abc import Iterator
from typing import Annotated

import typer

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Finding, Location, Report, sort_findings
from inkling_cli.checks.launch import LAUNCH_RULES
from inkling_cli.checks.launch.adapter_refs import parse_given_adapters
from inkling_cli.checks.launch.launch import COMMAND_LINE
from inkling_cli.checks.launch.read import read_environment, read_launches
from inkling_cli.checks.launch.subject import LaunchSubject, resolve_launch
from inkling_cli.exit_codes import FailOn, exit_code_of
from inkling_cli.options import FailOnOption, FindingsFormatOption
from inkling_cli.output import Output, OutputFormat
from inkling_cli.render.launches import launch_object, what_was_checked

EXAMPLES = (
    "inkling check-config serve.sh",
    "inkling check-config -- vllm serve MODEL --enable-lora --lora-modules a=DIR",
    "inkling check-config launch.yaml --model DIR --output-format github",
)


LaunchArgument = Annotated[list[str], typer.Argument(metavar="FILE|-|-- COMMAND", hidden=True)]
EngineOption = Annotated[
    Engine | None, typer.Option(help="The engine, where the launch does not tell it.")
]
VersionOption = Annotated[
    str | None,
    typer.Option(metavar="VERSION", help="The engine's version; the known one by default."),
]
ModelOption = Annotated[
    str | None,
    typer.Option(metavar="DIR|config.json", help="Where the model's config lies here."),
]
LoraOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[NAME=]DIR",
        help="An adapter that is loaded while the server runs, or where the adapter NAME of the "
        "launch lies here. Repeatable.",
    ),
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A variable of the server's environment. Repeatable."),
]
InheritOption = Annotated[
    bool, typer.Option("--inherit-env", help="Let the server inherit this environment.")
]


def check_config(
    launch: LaunchArgument,
    engine: EngineOption = None,
    engine_version: VersionOption = None,
    model: ModelOption = None,
    lora: LoraOption = None,
    env: EnvOption = None,
    inherit_env: InheritOption = False,
    output_format: FindingsFormatOption = OutputFormat.FULL,
    fail_on: FailOnOption = FailOn.ERROR,
) -> int:
    """Check a launch of vLLM or SGLang with LoRA adapters.

    The launch is a shell script, a YAML or JSON file of options, `-` for standard input, or,
    after `--`, the words of a command. Nothing is started and nothing is downloaded: adapters
    and the model's config are read if they lie on this machine, and what could not be read is
    said.

    Later ones win: the inherited environment, --env, what the launch itself sets.
    """
    output = Output("check-config", output_format)
    environment = read_environment(os.environ if inherit_env else {}, env or ())
    launches = read_launches(launch, environment, engine)
    adapters = parse_given_adapters(lora or (), Location(COMMAND_LINE, key="--lora"))
    subjects = [resolve_launch(found, engine_version, model, adapters) for found in launches]
    report = Report("check-config", sort_findings(_iter_findings(subjects)))
    details = {"launches": [launch_object(subject) for subject in subjects]}
    output.show_report(report, what_was_checked(subjects), details)
    return exit_code_of(report, fail_on)


def _iter_findings(subjects: list[LaunchSubject]) -> Iterator[Finding]:
    for subject in subjects:
        yield from LAUNCH_RULES.check(subject, subject.engine, subject.described_version)
