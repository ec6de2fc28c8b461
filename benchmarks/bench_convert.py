"""How fast an adapter is converted, beside a copy of the same bytes and beside what people use.

    python benchmarks/bench_convert.py [--large] [--cold] [--runs 3] [--folder DIR] [--json FILE]

The adapter has Inkling-Small's 910 names and shapes at rank 4 (0.5 GB), or at rank 32 (4.2 GB) with
`--large`, filled with normal numbers. In turn, each until all is on the disk: `cp` of the bytes
that are written; `inkling convert-adapter` to vLLM (as a process, and without its start), to
SGLang, to PEFT, and to one 2-D pair per expert; and what people write themselves: `load_file`,
rename, `save_file`. Peers run where they are installed: `sft rename` and `adapterbridge fix`, which
rename or copy, and tinker-cookbook's `build_lora_adapter`, which expands. With `--cold` the source
is dropped from the page cache before each run. At last the packing of PEFT from memory to memory.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from bench_startup import MAIN, PROBE
from bench_values import drop_from_cache, write_full_adapter

from factories import INKLING_SMALL, raw_config, write_model
from inkling_runtime.adapter.transpose import transpose

NAIVE = """
import sys
from safetensors.torch import load_file, save_file
source, target = sys.argv[1:]
tensors = {k.replace("shared_experts", "sink_experts"): t for k, t in load_file(source).items()}
save_file(tensors, target, {"format": "pt"})
"""
COOKBOOK = """
import sys
from tinker_cookbook.weights import build_lora_adapter
build_lora_adapter(base_model=sys.argv[3], adapter_path=sys.argv[1], output_path=sys.argv[2])
"""
LIBRARY = """
import os, sys, time
from pathlib import Path
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.arrays import CONTENTS
from inkling_runtime.adapter.convert.plan import plan_conversion
from inkling_runtime.adapter.convert.write import write_conversion
from inkling_runtime.adapter.dialects import DIALECTS
begin = time.perf_counter()
plan = plan_conversion(read_adapter(Path(sys.argv[1])), DIALECTS["vllm"], None, CONTENTS)
write_conversion(plan, Path(sys.argv[2]))
Path(os.environ["SECONDS"]).write_text(str(time.perf_counter() - begin))
"""
LIMIT_OF_CP, LIMIT_MB, LIMIT_PACKING_GB_S = 0.8, 200, 1.0


class Bench:
    """One source adapter, a place for results, and the runs by label."""

    def __init__(self, scratch: Path, rank: int, is_cold: bool) -> None:
        self.scratch = scratch
        self.weights = write_full_adapter(scratch / "adapter", rank)
        self.model = write_model(scratch / "model", raw_config(INKLING_SMALL))
        self.is_cold = is_cold
        self.runs: dict[str, list[tuple[float, float, int]]] = {}

    def commands(self) -> dict[str, list[str]]:
        """Return what is timed, by label. `OUT` stands for the result."""
        python, source = sys.executable, str(self.weights.parent)
        convert = [python, "-c", PROBE + MAIN, "convert-adapter", source, "-o", "OUT"]
        timed = {
            "cp": ["cp", str(self.weights), "OUT"],
            "inkling --to vllm": [*convert, "--to", "vllm"],
            "the same, without its start": [python, "-c", PROBE + LIBRARY, source, "OUT"],
            "inkling --to sglang": [*convert, "--to", "sglang", "--model", str(self.model)],
            "inkling --to vllm --expand": [*convert, "--to", "vllm", "--expand"],
            "cp of the expanded": ["cp", "LAST", "OUT"],
            "inkling --to peft": [*convert, "--to", "peft", "--model", str(self.model)],
            "cp of the packed": ["cp", "LAST", "OUT"],
        }
        if find_spec("torch") is not None:
            code = PROBE + NAIVE
            timed["load_file, save_file"] = [python, "-c", code, str(self.weights), "OUT"]
        if sft := shutil.which("sft"):
            names = ["--sub", "shared_experts", "--sub", "sink_experts"]
            timed["sft rename"] = [sft, "rename", str(self.weights), *names, "-o", "OUT"]
        if bridge := shutil.which("adapterbridge"):
            timed["adapterbridge fix"] = [bridge, "fix", "-s", source, "-d", "OUT", "-t", "vllm"]
        if find_spec("tinker_cookbook") is not None:
            code = PROBE + COOKBOOK
            timed["tinker-cookbook"] = [python, "-c", code, source, "OUT", str(self.model)]
        return timed

    def run_all(self) -> None:
        """Run every command once, in turn, each result removed when the next has used it."""
        last: Path | None = None
        for number, (label, words) in enumerate(self.commands().items()):
            out = self.scratch / f"out-{number}"
            if self.is_cold:
                drop_from_cache(self.weights)
            source = weights_of(last) if last is not None and "LAST" in words else self.weights
            if self.is_cold and source != self.weights:
                drop_from_cache(source)
            command = [{"OUT": str(out), "LAST": str(source)}.get(word, word) for word in words]
            self.runs.setdefault(label, []).append(self.time_of(command, out))
            remove(last)
            last = out
        remove(last)

    def time_of(self, command: list[str], out: Path) -> tuple[float, float, int]:
        """Return wall seconds until all is on the disk, peak memory in MB, bytes written."""
        note, inner = self.scratch / "peak", self.scratch / "seconds"
        for file in (note, inner):
            file.unlink(missing_ok=True)
        begin = time.perf_counter()
        subprocess.run(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "PEAK": str(note), "SECONDS": str(inner)},
            check=True,
        )
        flush(out)
        seconds = float(inner.read_text()) if inner.exists() else time.perf_counter() - begin
        peak = int(note.read_text()) / 1024 if note.exists() else 0.0
        return seconds, peak, weights_of(out).stat().st_size


def weights_of(path: Path) -> Path:
    """Return the weights file of a result, which may be that file itself."""
    return next(path.glob("*.safetensors")) if path.is_dir() else path


def flush(path: Path) -> None:
    """Wait until a result is on the disk."""
    descriptor = os.open(weights_of(path), os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def remove(path: Path | None) -> None:
    """Remove a result."""
    if path is not None and path.is_dir():
        shutil.rmtree(path)
    elif path is not None:
        path.unlink()


def packing_rate() -> float:
    """Return GB/s of PEFT's expert-fastest packing of one thread, from memory to memory."""
    stack = np.arange(256 * 512 * 32, dtype=np.uint32).astype(np.uint16).reshape(256, -1)
    seconds = []
    for _ in range(7):
        begin = time.perf_counter()
        transpose(stack)
        seconds.append(time.perf_counter() - begin)
    return stack.nbytes / statistics.median(seconds) / 1e9


def row_of(label: str, found: list[tuple[float, float, int]]) -> dict[str, str | float]:
    """Return the row of one command from its runs."""
    seconds = [wall for wall, _, _ in found]
    nbytes = found[0][2]
    return {
        "command": label,
        "median_s": statistics.median(seconds),
        "min_s": min(seconds),
        "written_gb": nbytes / 1e9,
        "gb_per_s": nbytes / statistics.median(seconds) / 1e9,
        "peak_mb": max(peak for _, peak, _ in found),
    }


BESIDE = {
    "inkling --to vllm --expand": "cp of the expanded",
    "inkling --to peft": "cp of the packed",
    "cp of the expanded": "cp of the expanded",
    "cp of the packed": "cp of the packed",
}
"""Which copy moves the bytes that a command writes; `cp` where it is not said."""


def main() -> None:
    """Time everything in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="rank 32, 4.2 GB")
    parser.add_argument("--cold", action="store_true", help="from the disk, not from memory")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where everything is written for the run")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        bench = Bench(Path(scratch), 32 if arguments.large else 4, arguments.cold)
        for _ in range(arguments.runs):
            bench.run_all()
    rows = {label: row_of(label, found) for label, found in bench.runs.items()}
    packing = packing_rate()
    print(
        f"limits: {LIMIT_OF_CP:g} of cp to vLLM, {LIMIT_MB} MB, packing {LIMIT_PACKING_GB_S:g} GB/s"
    )
    head = f"{'median':>10}{'min':>10}{'written':>9}{'GB/s':>7}{'of cp':>7}{'peak MB':>9}"
    print(f"{'command':<28}{head}")
    for label, row in rows.items():
        row["of_cp"] = rows[BESIDE.get(label, "cp")]["median_s"] / row["median_s"]
        print(
            f"{label:<28}{row['median_s']:>8.2f} s{row['min_s']:>8.2f} s{row['written_gb']:>9.2f}"
            f"{row['gb_per_s']:>7.2f}{row['of_cp']:>7.2f}{row['peak_mb']:>9.0f}"
        )
    print(f"packing from memory to memory, one thread: {packing:.2f} GB/s")
    if arguments.json:
        limits = {"of_cp": LIMIT_OF_CP, "peak_mb": LIMIT_MB, "packing_gb_s": LIMIT_PACKING_GB_S}
        found = {"load": os.getloadavg(), "limits": limits, "packing_gb_s": packing}
        arguments.json.write_text(json.dumps(found | {"rows": list(rows.values())}, indent=2))


if __name__ == "__main__":
    main()
