"""`inkling check-config`: whether a launch of vLLM or SGLang serves its adapters as meant."""

import os
from itertools import chain
from typing import Annotated

import typer

from inkling_cli.checks.finding import Report, Severity, sort_findings
from inkling_cli.checks.launch.fix.write_source import require_writable, write_source
from inkling_cli.checks.launch.inputs import check_sources, make_judge, read_sources
from inkling_cli.exit_codes import FailOn, exit_code_of
from inkling_cli.memory.gpu_memory import parse_gpu_memory
from inkling_cli.options import (
    EngineOption,
    EnvFileOption,
    EnvOption,
    FailOnOption,
    FindingsFormatOption,
    GpuMemoryOption,
    InheritOption,
    LaunchArgument,
    LaunchModelOption,
    LoraOption,
    VersionOption,
)
from inkling_cli.output import Output, OutputFormat
from inkling_cli.render.launches import (
    checked_object,
    corrected_text,
    outcome_lines,
    what_was_checked,
)
from inkling_runtime.errors import InklingError

EXAMPLES = (
    "inkling check-config serve.sh",
    "inkling check-config -- vllm serve MODEL --enable-lora --lora-modules a=DIR",
    "inkling check-config launch.yaml --model DIR --output-format github",
)


FixOption = Annotated[
    bool, typer.Option("--fix", help="Print the corrected launch in place of the findings.")
]
SkipOption = Annotated[
    bool, typer.Option("--skip-others", help="Pass over files that hold no launch.")
]
WriteOption = Annotated[
    bool, typer.Option("--write", help="Correct the file in place, and show what is left.")
]


def check_config(
    launch: LaunchArgument,
    engine: EngineOption = None,
    engine_version: VersionOption = None,
    model: LaunchModelOption = None,
    lora: LoraOption = None,
    env: EnvOption = None,
    env_file: EnvFileOption = None,
    inherit_env: InheritOption = False,
    gpu_memory: GpuMemoryOption = None,
    fix: FixOption = False,
    write: WriteOption = False,
    skip_others: SkipOption = False,
    output_format: FindingsFormatOption = OutputFormat.FULL,
    fail_on: FailOnOption = FailOn.ERROR,
) -> int:
    """Check a launch of vLLM or SGLang with LoRA adapters.

    The launch is a shell script, an engine's YAML file or a JSON file of options, a
    docker-compose file, a Kubernetes manifest, an env file, `-` for standard input, or, after
    `--`, the words of a command; several files are checked together. Nothing is started and
    nothing is downloaded: adapters and the model's config are read if they lie on this machine,
    and what could not be read is said.

    With --gpu-memory it is also checked whether weights and adapter slots fit.

    Later ones win: the inherited environment, --env-file, --env, what the launch itself sets.

    With --fix stdout is the launch with all changes that are safe, in the form it came in; what
    was changed and what is left is said on stderr.
    """
    output = Output("check-config", output_format)
    judge = make_judge(
        engine=engine,
        version=engine_version,
        model=model,
        lora=lora or (),
        env=env or (),
        env_files=env_file or (),
        inherited=os.environ if inherit_env else {},
        gpu_memory=None if gpu_memory is None else parse_gpu_memory(gpu_memory),
    )
    sources = read_sources(launch)
    as_text = fix and not write and not output.is_json
    if fix and not write:
        _require_printable(len(sources), output_format)
    for source in sources if write else ():
        require_writable(source)
    checked = check_sources(judge, sources, skip_others=skip_others, fix=fix or write)
    for source, fixed in checked.fixes if write else ():
        write_source(source, fixed.text)
    for finding in checked.fixed:
        output.note(f"fixed {finding.code} {finding.name}: {finding.message} ({finding.location})")
    found = chain.from_iterable(launch.findings for launch in checked.judged)
    report = Report("check-config", sort_findings(found))
    if as_text:
        for finding in report.findings:
            if finding.severity is not Severity.INFO:
                output.warn(f"left {finding.code} {finding.name}: {finding.message}")
        output.write(corrected_text(checked))
    else:
        lines = outcome_lines(checked)
        output.show_report(report, what_was_checked(checked), checked_object(checked), lines)
    return exit_code_of(report, fail_on)


def _require_printable(num_sources: int, output_format: OutputFormat) -> None:
    """Raise unless `--fix` can print one launch in a format."""
    if num_sources > 1:
        raise InklingError(
            f"{num_sources} files are given, expected one with `--fix`",
            "`--write` corrects files in place",
        )
    if output_format in (OutputFormat.GITHUB, OutputFormat.SARIF):
        raise InklingError(
            f"`--fix` prints the launch, which `{output_format.value}` cannot hold",
            "`--write` corrects the file in place and shows what is left",
        )
