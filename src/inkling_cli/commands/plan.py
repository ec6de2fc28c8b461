"""`inkling plan`: the memory of a launch, without a GPU."""

import os
import sys

from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.inputs import check_sources, make_judge, read_sources
from inkling_cli.checks.launch.judge import Judged
from inkling_cli.checks.launch.memory_plan import plan_launch
from inkling_cli.exit_codes import ExitCode
from inkling_cli.memory.gpu_memory import parse_gpu_memory
from inkling_cli.options import (
    EngineOption,
    EnvFileOption,
    EnvOption,
    GpuMemoryOption,
    InheritOption,
    LaunchArgument,
    LaunchModelOption,
    LoraOption,
    PlainFormatOption,
    VersionOption,
)
from inkling_cli.output import Output, PlainFormat
from inkling_cli.render.bars import blocks_for
from inkling_cli.render.plan import render_plans
from inkling_cli.render.plan_json import plan_object
from inkling_runtime.errors import format_names

EXAMPLES = (
    "inkling plan serve.sh --gpu-memory 141GiB",
    "inkling plan --model config.json -- vllm serve MODEL --enable-lora --max-lora-rank 32 -tp 8",
    "inkling plan launch.yaml --lora math=DIR --output-format json",
)


def plan(
    launch: LaunchArgument,
    engine: EngineOption = None,
    engine_version: VersionOption = None,
    model: LaunchModelOption = None,
    lora: LoraOption = None,
    env: EnvOption = None,
    env_file: EnvFileOption = None,
    inherit_env: InheritOption = False,
    gpu_memory: GpuMemoryOption = None,
    output_format: PlainFormatOption = PlainFormat.FULL,
) -> int:
    """Show how much memory a launch of vLLM or SGLang takes.

    Adapter slots by kind of module, base weights, caches and host memory, and what each choice
    costs, from the model's config.json and the words of the launch alone. The launch is given as
    for check-config: a file, `-`, or a command after `--`. With --gpu-memory the exit code is 1
    if it does not fit.
    """
    output = Output("plan", output_format)
    gpu_bytes = parse_gpu_memory(gpu_memory) if gpu_memory is not None else None
    judge = make_judge(
        engine=engine,
        version=engine_version,
        model=model,
        lora=lora or (),
        env=env or (),
        env_files=env_file or (),
        inherited=os.environ if inherit_env else {},
    )
    judged = check_sources(judge, read_sources(launch), skip_others=False, fix=False).judged
    planned = [(found.subject, *plan_launch(found.subject, gpu_bytes)) for found in judged]
    text = render_plans(planned, blocks_for(sys.stdout.encoding), output.width)
    output.show(text, {"launches": [plan_object(*parts) for parts in planned]})
    for found in judged:
        _warn_of_errors(output, found)
    is_enough = all(plan.fit is None or plan.fit.is_enough for _, plan, _ in planned)
    return ExitCode.CLEAN if is_enough else ExitCode.FINDINGS


def _warn_of_errors(output: Output, judged: Judged) -> None:
    errors = [found for found in judged.findings if found.severity is Severity.ERROR]
    if errors:
        codes = format_names(sorted({found.code for found in errors}))
        output.warn(f"check-config finds errors in this launch: {codes}")
