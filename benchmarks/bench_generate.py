"""How fast we generate, beside transformers with PEFT on the same model and beside the memory.

    python benchmarks/bench_generate.py [--model small|large] [--dtype float32|bfloat16]
        [--shared-outer] [--runs 3] [--new-tokens 64] [--workdir DIR] [--quick] [--json FILE]
    python benchmarks/bench_generate.py --start [--runs 5] [--json FILE]

A random model (`generation/models.py`) and a random adapter of PEFT on attention and routed
experts, at batch 1 and 8, with 128 tokens of prompt and 64 new ones, greedy. Every side is a
process of its own, with the base model or with the adapter, and they run in turn. Before anything
is timed, the adapter must change the logits by the same on both sides. transformers runs with the
better of two sets of OpenMP's settings, its own and ours; all else is what it does by default.
The limit is the rate at which all threads together read memory, taken in every round, over the
bytes of weights that a step must read. With `--shared-outer` all experts have the same factor on
the side of the hidden state, as adapters from Tinker do; PEFT stores and computes it once for
each. `--start` times `inkling generate` instead, from the start of the process to the first
token, and the parts of the way.

JSON: `load` (load averages before and after), `settings`, `agreement` (by dtype: errors of our
logits and of our delta), `limits` (by dtype: `read_gb_per_s`, `threads`,
`transformers_run_with`, `our_notes`), `rows`
(for each dtype, batch and case: `first_token_s` until all prompts have one, prefill and decode in
tokens per second, `step_read_mb`, `share_of_limit`, `peak_mb`, and the single `runs`) and `aims`
(what is aimed at and what was found). Of `--start`: `load` and `rows`.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from generation.agreement import check_agreement
from generation.aims import find_aims
from generation.models import ITEM_SIZES, MODELS, ModelFiles
from generation.rounds import Rounds, load, started
from generation.start import measure_start
from generation.worker_process import OUR_SETTINGS, Worker


def main() -> None:
    """Measure what was asked for, print tables and write JSON."""
    arguments = parse_arguments()
    before = os.getloadavg()
    if arguments.start:
        found = {"rows": measure_start(arguments.runs)}
        print_start(found["rows"])
    else:
        found = bench(arguments)
        print_tables(found)
    loads = [before, os.getloadavg()]
    print("load average", " → ".join(f"{load[0]:.2f}" for load in loads))
    if arguments.json:
        arguments.json.write_text(json.dumps({"load": loads, **found}, indent=2))


def parse_arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=("small", "large"), default="small")
    parser.add_argument("--dtype", choices=tuple(ITEM_SIZES), help="default: both")
    parser.add_argument("--shared-outer", action="store_true", help="one outer factor for all")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--new-tokens", type=int, help="for each prompt")
    parser.add_argument("--workdir", type=Path, help="where models are made and kept")
    parser.add_argument("--quick", action="store_true", help="a tiny model: shows that it runs")
    parser.add_argument("--start", action="store_true", help="time the start of the command")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.model, arguments.runs = "tiny", 1
        arguments.dtype = arguments.dtype or "float32"
    return arguments


def bench(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one dtype after the other."""
    sizes = MODELS[arguments.model]
    new_tokens = arguments.new_tokens or sizes.new_tokens
    settings = {
        "model": arguments.model,
        "config": sizes.config,
        "rank": sizes.rank,
        "is_shared_outer": arguments.shared_outer,
        "prompt_tokens": sizes.prompt_tokens,
        "new_tokens": new_tokens,
        "peft_new_tokens": min(new_tokens, sizes.peft_new_tokens),
        "runs": arguments.runs,
    }
    found: dict[str, Any] = {"settings": settings, "agreement": [], "limits": [], "rows": []}
    if arguments.workdir:
        arguments.workdir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.workdir) as scratch:
        workdir = arguments.workdir or Path(scratch)
        for dtype in [arguments.dtype] if arguments.dtype else ITEM_SIZES:
            files = ModelFiles(workdir, arguments.model, dtype, arguments.shared_outer)
            theirs: dict[str, str] = {} if arguments.quick else choose_settings(files)
            bench_dtype(files, theirs, new_tokens, arguments.runs, found)
    aims = find_aims(found["rows"], sizes.adapter_aim, arguments.model == "large")
    return {**found, "aims": [aim.as_object() for aim in aims]}


def bench_dtype(
    files: ModelFiles, theirs: dict[str, str], new_tokens: int, runs: int, found: dict[str, Any]
) -> None:
    """Measure one dtype and add what was found."""
    with started(OUR_SETTINGS, theirs) as workers:
        files.write()
        threads, notes = load(workers, files)
        rounds = Rounds(files, workers, new_tokens)
        found["agreement"].append(check_agreement(workers, rounds.prompts(1)[0], files.dtype))
        rounds.run(runs)
        found["rows"] += rounds.rows()
    limits = {"dtype": files.dtype, "read_gb_per_s": rounds.read_gb_per_s, "threads": threads}
    found["limits"].append({**limits, "transformers_run_with": theirs, "our_notes": notes})


def choose_settings(files: ModelFiles) -> dict[str, str]:
    """Return the settings of OpenMP with which transformers decodes faster: its own, or ours."""
    files.write()
    prompt = list(range(32))
    best = {}
    with Worker("transformers", {}) as plain, Worker("transformers", OUR_SETTINGS) as passive:
        for worker in (plain, passive):
            worker.call("load", model=str(files.model), dtype=files.dtype, adapter=None)
        for _ in range(4):
            for worker in (plain, passive):
                run = worker.call("run", prompts=[prompt], new_tokens=17, is_adapted=False)
                best[worker] = min(best.get(worker, run["decode_s"]), run["decode_s"])
    return {} if best[plain] <= best[passive] else OUR_SETTINGS


def print_tables(found: dict[str, Any]) -> None:
    """Print the rows and what they say of the aims."""
    print(
        f"{'':<10}{'batch':>5}  {'case':<25}{'first token':>12}{'prefill/s':>11}{'decode/s':>10}"
        f"{'ms/step':>9}{'of limit':>9}{'peak MB':>9}"
    )
    for row in found["rows"]:
        step = 1000 * row["batch"] / row["decode_tokens_per_s"]
        print(
            f"{row['dtype']:<10}{row['batch']:>5}  {row['case']:<25}{row['first_token_s']:>10.3f} s"
            f"{row['prefill_tokens_per_s']:>11.0f}{row['decode_tokens_per_s']:>10.2f}{step:>9.2f}"
            f"{row['share_of_limit']:>9.1%}{row['peak_mb']:>9.0f}"
        )
    for limit in found["limits"]:
        settings = limit["transformers_run_with"] or "its own settings"
        print(
            f"{limit['dtype']}: memory {limit['read_gb_per_s']:.1f} GB/s; transformers: {settings}"
        )
    for one in found["agreement"]:
        print(
            f"{one['dtype']}: error of logits {one['logits_error']:.1e}, of the delta "
            f"{one['delta_error']:.1e} (effect {one['effect']:.2f})"
        )
    for aim in found["aims"]:
        print_aim(aim)


def print_aim(aim: dict[str, Any]) -> None:
    """Print one aim."""
    bound = f"≥ {aim['at_least']:g}" if aim["at_least"] is not None else f"≤ {aim['at_most']:g}"
    verdict = "" if aim["is_met"] else "  missed"
    where = f"{aim['dtype']:<10}{aim['batch']:>5}"
    print(f"{where}  {aim['what']:<42}{aim['found']:>8.3g}  {bound}{verdict}")


def print_start(rows: list[dict[str, Any]]) -> None:
    """Print the parts of the way to the first token."""
    print(f"{'until':<36}{'median':>9}{'more':>9}{'limit':>8}")
    for row in rows:
        limit = f"{row['limit_s']:.1f} s" if row["limit_s"] else ""
        print(f"{row['part']:<36}{row['median_s']:>7.3f} s{row['more_s']:>7.3f} s{limit:>8}")


if __name__ == "__main__":
    main()
