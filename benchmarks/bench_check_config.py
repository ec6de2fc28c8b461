"""How long `inkling check-config` takes on a launch of real size, as a whole process.

    python benchmarks/bench_check_config.py [--runs 9] [--json FILE]

Four adapters with Inkling-Small's 910 names and shapes (or Inkling's 1,438), in the form that
Tinker releases, beside the model's config.json. Their payloads are holes in the files: no disk is
used. The floors run in turn with the commands: importing the terminal libraries, a program of Typer
that takes one option and does nothing (Typer then imports pydantic), and reading and parsing the
same four headers and nothing else.
"""

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path

from bench_startup import MAIN, run

from factories import (
    INKLING,
    INKLING_SMALL,
    Sizes,
    raw_config,
    released_adapter_config,
    released_modules,
    write_model,
    write_sparse_adapter,
)

MODELS = {"Inkling-Small": INKLING_SMALL, "Inkling": INKLING}
RANK = 32
FLOOR = "import typer, rich"
HEADERS = """
import json, sys
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        json.loads(file.read(int.from_bytes(file.read(8), "little")))
"""
EMPTY_PROGRAM = """
import typer
app = typer.Typer(add_completion=False)
@app.command()
def main(word: str = ""): pass
app()
"""
LIMIT = 0.8
"""Seconds that a launch of Inkling-Small may take on an idle machine."""


def write_launch(folder: Path, sizes: Sizes) -> list[str]:
    """Write a model's config and four adapters, and return the adapters as `NAME=DIR`."""
    write_model(folder / "model", raw_config(sizes))
    modules = released_modules(sizes)
    config = released_adapter_config(rank=RANK)
    names = ("math", "code", "chat", "law")
    return [f"{n}={write_sparse_adapter(folder / n, modules, config)}" for n in names]


def commands(label: str, folder: Path, adapters: list[str]) -> dict[str, list[str]]:
    """Return what is timed over one model, by label."""
    files = [f"{entry.partition('=')[2]}/adapter_model.safetensors" for entry in adapters]
    model, check = str(folder / "model"), ["-c", MAIN, "check-config", "--fail-on", "never"]
    vllm = ["vllm", "serve", model, "--enable-lora", "--max-loras", "4", "--max-lora-rank", "32"]
    sglang = ["sglang", "serve", model, "--lora-backend", "triton", "--tp", "8"]
    return {
        f"{label}: four headers, json": ["-c", HEADERS, *files],
        f"{label}: vllm": [*check, "--", *vllm, "--lora-modules", *adapters],
        f"{label}: sglang": [*check, "--", *sglang, "--lora-paths", *adapters],
    }


def main() -> None:
    """Time everything in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        timed = {
            "python -c pass": ["-c", "pass"],
            FLOOR: ["-c", "import typer, rich.console"],
            "an empty program of Typer": ["-c", EMPTY_PROGRAM, "--word", "a"],
            "inkling --version": ["-c", MAIN, "--version"],
        }
        for label, sizes in MODELS.items():
            folder = Path(scratch) / label
            timed |= commands(label, folder, write_launch(folder, sizes))
        runs: dict[str, list[tuple[float, float]]] = {label: [] for label in timed}
        for _ in range(arguments.runs + 1):
            for label, words in timed.items():
                runs[label].append(run(words, Path(scratch) / "peak"))
    rows = [row_of(label, found[1:]) for label, found in runs.items()]
    floor = next(row["median_s"] for row in rows if row["command"] == FLOOR)
    print(f"{'command':<36}{'median':>9}{'min':>9}{'x typer':>9}{'peak MB':>9}{'limit':>8}")
    for row in rows:
        limit = f"{row['limit_s']:.1f} s" if row["limit_s"] else ""
        print(
            f"{row['command']:<36}{row['median_s']:>7.3f} s{row['min_s']:>7.3f} s"
            f"{row['median_s'] / floor:>9.1f}{row['peak_mb']:>9.0f}{limit:>8}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"load": os.getloadavg(), "rows": rows}, indent=2))


def row_of(label: str, found: list[tuple[float, float]]) -> dict[str, str | float | None]:
    """Return the row of one command from the seconds and megabytes of its runs."""
    seconds = [wall for wall, _ in found]
    is_limited = label.startswith("Inkling-Small: ") and "json" not in label
    return {
        "command": label,
        "median_s": statistics.median(seconds),
        "min_s": min(seconds),
        "peak_mb": max(memory for _, memory in found),
        "limit_s": LIMIT if is_limited else None,
    }


if __name__ == "__main__":
    main()
