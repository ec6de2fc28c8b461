"""`inkling generate`: run a model with adapters, or show what an adapter changes."""

from pathlib import Path
from typing import Annotated

import typer

from inkling_cli.exit_codes import ExitCode
from inkling_cli.generation.asked import pair_up, parse_adapters, parse_prompts, plan_adapter
from inkling_cli.generation.run import (
    compare_prompts,
    load_model,
    make_requests,
    make_sampling,
    run_prompts,
)
from inkling_cli.options import DialectOption, PlainFormatOption
from inkling_cli.output import Output, PlainFormat
from inkling_cli.render.generation import render_comparisons
from inkling_runtime.adapter.model_spec import read_model_spec

EXAMPLES = (
    'inkling generate MODEL --lora ADAPTER --prompt "3 4 5"',
    'inkling generate MODEL --lora a=DIR --lora b=DIR --adapter b --chat "Hello" --effort low',
    'inkling generate MODEL --lora ADAPTER --prompt "3 4 5" --compare',
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
    adapter: Annotated[
        Many,
        typer.Option(
            metavar="NAME",
            help="Which adapter a prompt runs with, `base` for none: once for all prompts or once "
            "for each. By default every loaded adapter.",
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="Tokens to generate at most.")] = 64,
    temperature: Annotated[float, typer.Option(help="0 takes the most probable token.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Sample from this much probability.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Sample from so many tokens; 0: all.")] = 0,
    seed: Annotated[int | None, typer.Option(help="Makes sampling repeatable.")] = None,
    stop_id: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="A token id that ends the reply. Repeatable."),
    ] = None,
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
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    output_format: PlainFormatOption = PlainFormat.FULL,
) -> int:
    """Generate text with a base model and LoRA adapters.

    An adapter of which a part would not be applied is refused. Several prompts and adapters run
    together in one batch.
    """
    output = Output("generate", output_format)
    prompts = parse_prompts(prompt or [], chat or [], system, messages, prompt_ids or [])
    folders = parse_adapters(lora or [])
    runs = pair_up(prompts, list(folders), adapter or [])
    spec = read_model_spec(model)
    plans = [plan_adapter(n, p, spec, dialect, allow_partial) for n, p in folders.items()]
    for plan in plans:
        for finding in plan.findings:
            output.warn(f"not all of `{plan.name}` is applied: {finding.message}")
    text_llm = load_model(model, plans, device, dtype)
    for note in text_llm.llm.notes:
        output.note(note)
    sampling = make_sampling(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        stop_ids=tuple(stop_id or ()),
    )
    requests = make_requests(text_llm, runs, sampling, effort)
    if not compare:
        output.show_data({"completions": run_prompts(text_llm, runs, requests, output.write)})
        return ExitCode.CLEAN
    comparisons = compare_prompts(text_llm, runs, requests)
    output.show(render_comparisons(comparisons), {"comparisons": comparisons})
    all_take_effect = all(comparison["takes_effect"] for comparison in comparisons)
    return ExitCode.CLEAN if all_take_effect else ExitCode.FINDINGS
