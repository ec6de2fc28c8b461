"""How long the torch-free commands take as whole processes, beside what Python itself costs.

    python benchmarks/bench_startup.py [--runs 9] [--json FILE]

Each command runs in turn with the floors, so that all of them meet the same machine. The adapter
has Inkling-Small's 910 names and shapes at rank 1; its payload is a hole in the file.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from factories import (
    INKLING_SMALL,
    raw_config,
    released_adapter_config,
    released_modules,
    write_model,
    write_sparse_adapter,
)

MAIN = "import sys; from inkling_cli.main import main; sys.exit(main(sys.argv[1:]))"
PROBE = """
import atexit, os
def _note():
    with open("/proc/self/status") as status, open(os.environ["PEAK"], "w") as file:
        file.write(next(line.split()[1] for line in status if line.startswith("VmHWM")))
atexit.register(_note)
"""
"""Notes the process's own peak memory; what the parent sees includes the parent's before exec."""
LIMITS = {"--help": 0.3, "inspect": 0.5, "inspect --model": 0.5}
"""Seconds that a command may take on an idle machine."""


def commands(folder: Path) -> dict[str, list[str]]:
    """Return what is timed, by label."""
    adapter, model = str(folder / "adapter"), str(folder / "model")
    return {
        "python -c pass": ["-c", "pass"],
        "import typer, rich": ["-c", "import typer, rich.console"],
        "import numpy": ["-c", "import numpy"],
        "import torch": ["-c", "import torch"],
        "--help": ["-c", MAIN, "--help"],
        "inspect": ["-c", MAIN, "inspect", adapter],
        "inspect --model": ["-c", MAIN, "inspect", adapter, "--model", model],
        "check-adapter": ["-c", MAIN, "check-adapter", adapter, "--model", model],
        "check-config": [
            *("-c", MAIN, "check-config", "--", "vllm", "serve", model, "--enable-lora"),
            *("--lora-modules", f"a={adapter}"),
        ],
    }


def run(words: list[str], note: Path) -> tuple[float, float]:
    """Return wall seconds and peak memory in MB of one process that runs `-c CODE …`."""
    command = [sys.executable, "-c", PROBE + words[1], *words[2:]]
    environment = {**os.environ, "PEAK": str(note)}
    begin = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, check=False)
    return time.perf_counter() - begin, int(note.read_text()) / 1024


def main() -> None:
    """Time everything in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        modules = released_modules(INKLING_SMALL)
        write_sparse_adapter(folder / "adapter", modules, released_adapter_config(rank=1))
        write_model(folder / "model", raw_config(INKLING_SMALL))
        timed = commands(folder)
        runs: dict[str, list[tuple[float, float]]] = {label: [] for label in timed}
        for _ in range(arguments.runs + 1):
            for label, words in timed.items():
                runs[label].append(run(words, folder / "peak"))
    rows = []
    for label, found in runs.items():
        seconds = [wall for wall, _ in found[1:]]
        rows.append(
            {
                "command": label,
                "median_s": statistics.median(seconds),
                "min_s": min(seconds),
                "peak_mb": max(memory for _, memory in found[1:]),
                "limit_s": LIMITS.get(label),
            }
        )
    floor = rows[1]["median_s"]
    print(f"{'command':<20}{'median':>9}{'min':>9}{'x typer':>9}{'peak MB':>9}{'limit':>8}")
    for row in rows:
        limit = f"{row['limit_s']:.1f} s" if row["limit_s"] else ""
        print(
            f"{row['command']:<20}{row['median_s']:>7.3f} s{row['min_s']:>7.3f} s"
            f"{row['median_s'] / floor:>9.1f}{row['peak_mb']:>9.0f}{limit:>8}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"load": os.getloadavg(), "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
