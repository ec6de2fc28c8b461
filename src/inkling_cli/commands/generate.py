"""`inkling generate`: run a model with adapters, or show what an adapter changes."""

from pathlib import Path
from typing import Annotated, Any

import typer

from inkling_cli.exit_codes import ExitCode
from inkling_cli.generation.asked import (
    AdapterPlan,
    pair_up,
    parse_adapters,
    parse_prompts,
    plan_adapter,
)
from inkling_cli.generation.run import (
    compare_prompts,
    load_model,
    make_requests,
    make_sampling,
    run_prompts,
)
from inkling_cli.generation_options import (
    CacheMemoryOption,
    CompileMode,
    CompileOption,
    DeviceOption,
    DtypeOption,
    EngineOptions,
    ExpertParallelOption,
    MaxBatchTokensOption,
    MaxLorasOption,
    MaxSequencesOption,
    MaxTokensOption,
    PromptLogprobsOption,
    SeedOption,
    StopIdOption,
    StopOption,
    TemperatureOption,
    TensorParallelOption,
    TopKOption,
    TopLogprobsOption,
    TopPOption,
)
from inkling_cli.options import DialectOption, PlainFormatOption
from inkling_cli.output import Output, PlainFormat
from inkling_cli.render.generation import render_comparisons
from inkling_cli.running import FileRun, run_file
from inkling_runtime.adapter.model_spec import read_model_spec
from inkling_runtime.errors import InklingError

EXAMPLES = (
    'inkling generate MODEL --lora ADAPTER --prompt "3 4 5"',
    'inkling generate MODEL --lora a=DIR --lora b=DIR --adapter b --chat "Hello" --effort low',
    "inkling generate MODEL --lora ADAPTER --prompts in.jsonl --results out.jsonl --resume",
)

Many = list[str] | None


def generate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The base model's folder.")],
    lora: Annotated[
        Many, typer.Option(metavar="[NAME=]DIR", help="An adapter to load. Repeatable.")
    ] = None,
    prompt: Annotated[Many, typer.Option(metavar="TEXT", help="A text to continue.")] = None,
    chat: Annotated[Many, typer.Option(metavar="TEXT", help="A user's message.")] = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A system message before each --chat.")
    ] = None,
    messages: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Chat messages: a JSON list of role and content."),
    ] = None,
    prompt_ids: Annotated[
        Many, typer.Option(metavar="IDS", help="Token ids to continue: 3,4,5.")
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Many prompts: a JSON object a line with prompt, messages or prompt_ids, and "
            "optionally id, adapter and sampling.",
        ),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where the results of --prompts go, a JSON object a line."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with --results where it was broken off.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace --results if it exists.")
    ] = False,
    adapter: Annotated[
        Many,
        typer.Option(
            metavar="NAME",
            help="Which adapter a prompt runs with, `base` for none: once for all prompts or once "
            "for each. By default every loaded adapter.",
        ),
    ] = None,
    max_tokens: MaxTokensOption = 64,
    temperature: TemperatureOption = 0.0,
    top_p: TopPOption = 1.0,
    top_k: TopKOption = 0,
    seed: SeedOption = None,
    stop: StopOption = None,
    stop_id: StopIdOption = None,
    top_logprobs: TopLogprobsOption = 0,
    prompt_logprobs: PromptLogprobsOption = False,
    effort: Annotated[
        str, typer.Option(help="Thinking effort of chat prompts: none … max, or 0 to 0.99.")
    ] = "high",
    compare: Annotated[
        bool, typer.Option("--compare", help="Show base and adapter side by side.")
    ] = False,
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="Run what can be applied of an adapter.")
    ] = False,
    dialect: DialectOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    tp: TensorParallelOption = 1,
    ep: ExpertParallelOption = False,
    compile_mode: CompileOption = CompileMode.AUTO,
    max_loras: MaxLorasOption = 8,
    max_batch_tokens: MaxBatchTokensOption = 512,
    max_sequences: MaxSequencesOption = 32,
    cache_memory: CacheMemoryOption = "auto",
    output_format: PlainFormatOption = PlainFormat.FULL,
) -> int:
    """Generate text with a base model and LoRA adapters.

    An adapter of which a part would not be applied is refused. Several prompts and adapters run
    together in one batch; many of them come from a file and go to one (--prompts, --results).
    """
    output = Output("generate", output_format)
    sampling: dict[str, Any] = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "seed": seed,
        "stop": tuple(stop or ()),
        "stop_ids": tuple(stop_id or ()),
        "top_logprobs": top_logprobs,
        "prompt_logprobs": prompt_logprobs,
    }
    engine = EngineOptions(
        device, dtype, tp, ep, max_loras, max_batch_tokens, max_sequences, cache_memory
    ).arguments()
    folders = parse_adapters(lora or [])

    def load() -> Any:
        plans = _plan_adapters(model, folders, dialect, allow_partial, output)
        return load_model(model, plans, compile_mode, output.note, engine)

    if prompts is not None:
        _require_alone(prompt, chat, system, messages, prompt_ids, compare)
        asked = FileRun(prompts, results, resume, overwrite, list(folders), adapter or [])
        return run_file(asked, sampling, effort, load, output)
    if results is not None or resume or overwrite:
        raise InklingError("`--results`, `--resume` and `--overwrite` go with `--prompts FILE`")
    runs = pair_up(
        parse_prompts(prompt or [], chat or [], system, messages, prompt_ids or []),
        list(folders),
        adapter or [],
    )
    text_llm = load()
    requests = make_requests(text_llm, runs, make_sampling(**sampling), effort)
    if not compare:
        completions = run_prompts(text_llm, runs, requests, output.write)
        output.show_data({"completions": completions})
        errors = [(r, one["error"]) for r, one in zip(runs, completions, strict=True)]
        errors = [(run, error) for run, error in errors if error is not None]
        for run, error in errors:
            output.show_error(f"{run.heading}: {error}")
        return ExitCode.NOT_DONE if errors else ExitCode.CLEAN
    comparisons = compare_prompts(text_llm, runs, requests)
    output.show(render_comparisons(comparisons), {"comparisons": comparisons})
    all_take_effect = all(comparison["takes_effect"] for comparison in comparisons)
    return ExitCode.CLEAN if all_take_effect else ExitCode.FINDINGS


def _plan_adapters(
    model: Path,
    folders: dict[str, Path],
    dialect: str | None,
    allow_partial: bool,
    output: Output,
) -> list[AdapterPlan]:
    """Return what of each adapter will be applied, and warn of what will not."""
    spec = read_model_spec(model)
    plans = [plan_adapter(n, p, spec, dialect, allow_partial) for n, p in folders.items()]
    for plan in plans:
        for finding in plan.findings:
            output.warn(f"not all of `{plan.name}` is applied: {finding.message}")
    return plans


def _require_alone(*others: object) -> None:
    """Require that nothing beside the file says what to run."""
    if any(others):
        raise InklingError(
            "`--prompts FILE` stands beside another prompt or `--compare`, expected it alone"
        )
