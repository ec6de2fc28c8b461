"""All Triton kernels at Inkling's real layer size: right, how fast, and as CUDA graphs.

    python benchmarks/gpu.py [--seconds 450] [--experts 256] [--json FILE] [--markdown FILE]
    TRITON_INTERPRET=1 python benchmarks/gpu.py --dry-run

One sliding sparse layer (hidden 6144, 64 heads, 256 experts top-6 of width 3072, 2 shared
experts) with random weights in bf16 and shared-outer adapters of rank 32 on every site. Every op
is held against its reference in float64, for a decode step and for one that mixes prompts and
decode; then a decode step is timed as a CUDA graph at batch 1, 8 and 64, without and with an
adapter, against the bytes that it must read at 4.8 TB/s; then graphs are captured, replayed and
given other adapters. Sequences hold 1024 tokens, of which the layer sees 512.

Parts that no time is left for are skipped and named; what was found is kept. Where 256 experts do
not fit the memory, 64 are taken. With `--dry-run` the same code runs at a tiny size in fp32 in
Triton's interpreter, and its times mean nothing.

JSON: `device`, `settings`, `checks` (name, error, tolerance), `timings` (batch, rank,
experts_read, megabytes, microseconds, share_of_peak, launches), `skipped`, `seconds`. Exits with
1 if a check is not within its tolerance or a part was skipped.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from gpu_layer.checks import Case, Check, run_checks
from gpu_layer.graphs import check_graphs
from gpu_layer.sizes import Setup, make_setup, random_factors
from gpu_layer.timing import Timing, time_step
from torch import Tensor

from inkling_runtime.engine.cuda_graph import CudaRecorder, Replay
from inkling_runtime.ops.backend import Backend, use_backend

BYTES_PER_EXPERT = 3 * 6144 * 3072 * 2
REPEATS = 60
RANK = 32


@dataclass
class Results:
    """What was found until now."""

    device: str
    settings: dict[str, Any]
    checks: list[Check] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether everything was run and is right."""
        return not self.skipped and all(check.is_good for check in self.checks)

    def to_json(self) -> str:
        """Return all of it."""
        timings = [asdict(t) | {"share_of_peak": t.share_of_peak} for t in self.timings]
        return json.dumps(asdict(self) | {"timings": timings}, indent=1) + "\n"

    def to_markdown(self) -> str:
        """Return two tables."""
        lines = [f"Device: {self.device}, {self.settings}", ""]
        lines += ["| batch | adapter | experts | MB | µs | share of 4.8 TB/s | launches |"]
        lines += ["|---|---|---|---|---|---|---|"]
        for t in self.timings:
            adapter = f"rank {t.rank}" if t.rank else "none"
            lines.append(
                f"| {t.batch} | {adapter} | {t.experts_read} | {t.megabytes:.0f} | "
                f"{t.microseconds:.1f} | {t.share_of_peak:.1%} | {t.launches} |"
            )
        lines += ["", "| check | error | tolerance | |", "|---|---|---|---|"]
        for check in self.checks:
            verdict = "" if check.is_good else "**wrong**"
            lines.append(
                f"| {check.name} | {check.error:.2e} | {check.tolerance:.1e} | {verdict} |"
            )
        lines += [f"\nSkipped: {name}" for name in self.skipped]
        return "\n".join([*lines, "", f"{self.seconds:.0f} seconds."]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts, write what was found, and return the exit code."""
    parser = argparse.ArgumentParser(description="Check and time the Triton kernels.")
    parser.add_argument("--seconds", type=float, default=450.0, help="no part begins later")
    parser.add_argument("--experts", type=int, default=256)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--dry-run", action="store_true", help="a tiny layer in the interpreter")
    options = parser.parse_args(arguments)
    if not options.dry_run and not torch.cuda.is_available():
        sys.stderr.write("no CUDA device is here, expected one\nhint: run it with --dry-run\n")
        return 2
    results, began = _prepare(options), time.monotonic()
    with torch.inference_mode(), use_backend(Backend.TRITON):
        for name, part in _parts(options, results):
            if time.monotonic() - began > options.seconds:
                results.skipped.append(name)
                continue
            _run_part(name, part, results)
            results.seconds = time.monotonic() - began
            sys.stderr.write(f"{results.seconds:6.0f} s  {name}\n")
            _write(results, options)
    _write(results, options)
    sys.stdout.write(results.to_markdown())
    return 0 if results.is_good else 1


def _run_part(name: str, part: Callable[[], None], results: Results) -> None:
    """Run a part; one that breaks is a check that is not good, and the next ones go on."""
    try:
        part()
    except Exception as error:
        sys.stderr.write(f"{name}: {type(error).__name__}: {error}\n")
        results.checks.append(Check(f"{name}: {type(error).__name__}", float("inf"), 0.0))


def _write(results: Results, options: argparse.Namespace) -> None:
    for path, text in ((options.json, results.to_json), (options.markdown, results.to_markdown)):
        if path is not None:
            path.write_text(text())


def _prepare(options: argparse.Namespace) -> Results:
    if options.dry_run:
        return Results("interpreter", {"experts": 4, "rank": 16, "dtype": "float32"})
    free, _ = torch.cuda.mem_get_info()
    experts = options.experts if free > 1.6 * options.experts * BYTES_PER_EXPERT else 64
    settings = {"experts": experts, "rank": RANK, "dtype": "bfloat16", "torch": torch.__version__}
    return Results(torch.cuda.get_device_name(), settings)


def _parts(
    options: argparse.Namespace, results: Results
) -> Iterator[tuple[str, Callable[[], None]]]:
    dry, settings = options.dry_run, results.settings
    setup = make_setup(
        settings["experts"],
        is_tiny=dry,
        device=torch.device("cpu" if dry else "cuda"),
        dtype=getattr(torch, settings["dtype"]),
        batch=4 if dry else 64,
    )
    rank = settings["rank"]
    for slot in (0, 1):
        setup.adapters.load(slot, random_factors(setup, rank, seed=slot))
    record: Callable[[Callable[[], Tensor]], Replay] = (lambda run: run) if dry else CudaRecorder()
    graph_record = record if dry else None
    cases = [
        Case("decode", setup, (1, 1, 1) if dry else (1,) * 8),
        Case("mixed", setup, (1, 3, 1) if dry else (1, 37, 1, 90)),
    ]
    yield f"checks, {cases[0].name}", lambda: _check(cases[0], results)
    yield "graphs", lambda: results.checks.extend(check_graphs(setup, rank, graph_record))
    for batch in (2,) if dry else (1, 8, 64):
        yield f"timing, batch {batch}", lambda batch=batch: _time(setup, batch, record, results)
    yield f"checks, {cases[1].name}", lambda: _check(cases[1], results)


def _check(case: Case, results: Results) -> None:
    for check in run_checks(case):
        results.checks.append(check)


def _time(
    setup: Setup, batch: int, record: Callable[[Callable[[], Tensor]], Replay], results: Results
) -> None:
    rank = results.settings["rank"]
    for slots, own in (((-1,) * batch, 0), ((0,) * batch, rank)):
        results.timings.append(time_step(setup, slots, own, record, REPEATS))


if __name__ == "__main__":
    sys.exit(main())
