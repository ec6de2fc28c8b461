"""How fast the numbers of an adapter are read, beside reading alone and beside the usual way.

    python benchmarks/bench_values.py [--large] [--cold] [--runs 5] [--json FILE]

The adapter has Inkling-Small's 910 names and shapes at rank 4 (0.5 GB), or at rank 32 (4.2 GB) with
`--large`, filled with normal numbers. In turn: `cat` as the floor; the library's scan (finite or
not, norms and effective ranks of all deltas); the whole command; and what people write themselves,
all tensors loaded and `isfinite` of each, which needs torch because numpy has no bf16. With
`--cold` the file is dropped from the page cache before each run, so that the disk counts.
"""

import argparse
import json
import os
import statistics
import struct
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from bench_startup import MAIN, run

from factories import (
    INKLING_SMALL,
    released_adapter_config,
    released_modules,
    write_sparse_adapter,
)

SCAN = """
import sys
from pathlib import Path
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.site_pairs import gather_sound_pairs
from inkling_runtime.adapter.values.read import read_values
adapter = read_adapter(Path(sys.argv[1]))
assert read_values(adapter, gather_sound_pairs(adapter, None)[0]).norm > 0
"""
NAIVE = """
import sys
from safetensors.torch import load_file
assert all(t.isfinite().all() for t in load_file(sys.argv[1]).values())
"""
LIMIT_GB_S, LIMIT_MB = 1.0, 300


def write_full_adapter(folder: Path, rank: int) -> Path:
    """Write an adapter whose payload is normal bf16 numbers, and return its weights file."""
    write_sparse_adapter(folder, released_modules(INKLING_SMALL), released_adapter_config(rank))
    path = folder / "adapter_model.safetensors"
    numbers = np.random.default_rng(0).normal(0, 0.02, 1 << 22).astype(np.float32)
    block = (numbers.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    with path.open("r+b") as file:
        position = 8 + struct.unpack("<Q", file.read(8))[0]
        file.seek(position)
        for start in range(position, path.stat().st_size, len(block)):
            file.write(block[: path.stat().st_size - start])
    return path


def time_of(command: list[str], note: Path) -> tuple[float, float]:
    """Return wall seconds and peak memory in MB (0 for `cat`) of one process."""
    if command[0] != "cat":
        note.unlink(missing_ok=True)
        return run(command, note)
    begin = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin, 0.0


def drop_from_cache(path: Path) -> None:
    """Let the operating system forget a file's contents."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def commands(weights: Path) -> dict[str, list[str]]:
    """Return what is timed, by label."""
    folder = str(weights.parent)
    timed = {
        "cat (floor)": ["cat", str(weights)],
        "scan (library)": ["-c", SCAN, folder],
        "check-adapter": ["-c", MAIN, "check-adapter", folder],
        "check-adapter --values": ["-c", MAIN, "check-adapter", folder, "--values"],
    }
    for label in ("check-adapter", "check-adapter --values"):
        timed[label] += ["--fail-on", "never"]
    if find_spec("torch") is not None:
        timed["load_file, isfinite"] = ["-c", NAIVE, str(weights)]
    return timed


def main() -> None:
    """Time everything in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="rank 32, 4.2 GB")
    parser.add_argument("--cold", action="store_true", help="from the disk, not from memory")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the adapter is written for the run")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        weights = write_full_adapter(Path(scratch) / "adapter", 32 if arguments.large else 4)
        size = weights.stat().st_size
        runs: dict[str, list[tuple[float, float]]] = {}
        for _ in range(arguments.runs + 1):
            for label, command in commands(weights).items():
                if arguments.cold:
                    drop_from_cache(weights)
                runs.setdefault(label, []).append(time_of(command, Path(scratch) / "peak"))
    rows = [row_of(label, found[1:], size) for label, found in runs.items()]
    print(f"{size / 1e9:.2f} GB, limit for the scan {LIMIT_GB_S:g} GB/s and {LIMIT_MB} MB")
    print(f"{'command':<26}{'median':>10}{'min':>10}{'GB/s':>8}{'x cat':>8}{'peak MB':>9}")
    for row in rows:
        print(
            f"{row['command']:<26}{row['median_s']:>8.3f} s{row['min_s']:>8.3f} s"
            f"{row['gb_per_s']:>8.2f}{row['median_s'] / rows[0]['median_s']:>8.1f}"
            f"{row['peak_mb']:>9.0f}"
        )
    if arguments.json:
        limits = {"gb_per_s": LIMIT_GB_S, "peak_mb": LIMIT_MB}
        found = {"load": os.getloadavg(), "bytes": size, "limits": limits, "rows": rows}
        arguments.json.write_text(json.dumps(found, indent=2))


def row_of(label: str, found: list[tuple[float, float]], size: int) -> dict[str, str | float]:
    """Return the row of one command from the seconds and megabytes of its runs."""
    seconds = [wall for wall, _ in found]
    return {
        "command": label,
        "median_s": statistics.median(seconds),
        "min_s": min(seconds),
        "gb_per_s": size / statistics.median(seconds) / 1e9,
        "peak_mb": max(memory for _, memory in found),
    }


if __name__ == "__main__":
    main()
