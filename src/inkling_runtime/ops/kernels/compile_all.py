"""Compiles every kernel without a GPU: `python -m inkling_runtime.ops.kernels.compile_all`.

Prints registers, spilled bytes and shared memory of each kernel at Inkling's real sizes, for
sm_80, sm_90 and sm_100, and exits with 1 if one spills or does not fit; `--json FILE` writes the
rows. Shows neither that a kernel is right (the interpreter does) nor that it is fast (a GPU does).

What is compiled are the `VARIANTS` of the files beside this one: calls by name, made on meta
tensors, so that the very tile sizes of a real launch are compiled.
"""

import argparse
import importlib
import json
import multiprocessing
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import triton

from inkling_runtime.errors import InklingError
from inkling_runtime.ops import kernels
from inkling_runtime.ops.kernels.launch import INTERPRETED, compile_launches

SHARED_LIMITS = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024}
"""By compute capability, the bytes of shared memory that a program may have."""
TENSOR_MEMORY_COLUMNS = 512
"""Of a multiprocessor of sm_100."""

_USAGE = re.compile(r"\b(REG|STACK|LOCAL):(\d+)")


@dataclass(frozen=True, slots=True)
class Usage:
    """What one compiled kernel takes."""

    file: str
    variant: str
    kernel: str
    capability: int
    registers: int
    spilled: int
    """Bytes per thread that live in local memory in place of registers."""
    shared: int
    tensor_memory: int
    num_warps: int

    def defects(self) -> list[str]:
        """Return what keeps the kernel from being used."""
        limit, found = SHARED_LIMITS[self.capability], []
        if self.spilled:
            found.append(f"spills {self.spilled} bytes, none is expected")
        if self.shared > limit:
            found.append(f"takes {self.shared} bytes of shared memory, the device has {limit}")
        if self.tensor_memory > TENSOR_MEMORY_COLUMNS:
            found.append(
                f"takes {self.tensor_memory} columns of tensor memory, "
                f"the device has {TENSOR_MEMORY_COLUMNS}"
            )
        return found


def list_variants() -> list[tuple[str, str]]:
    """Return (file, variant) of everything that is to be compiled, in the order of names."""
    names = sorted(module.name for module in pkgutil.iter_modules(kernels.__path__))
    return [(name, variant) for name in names for variant in _variants(name)]


def compile_variant(file: str, variant: str, capability: int) -> list[Usage]:
    """Return what the kernels take that one variant launches."""
    with compile_launches(capability) as compiled, torch.device("meta"):
        try:
            _variants(file)[variant]()
        except Exception as error:
            error.add_note(f"while `{variant}` of {file}.py was compiled for sm_{capability}")
            raise
    return [_usage(kernel, file, variant, capability) for kernel in compiled]


def format_table(rows: Sequence[Usage]) -> str:
    """Return the rows as text, one kernel of one variant a line, its defects below it."""
    line = "{:<54} {:>6} {:>5} {:>9} {:>7} {:>8} {:>8}"
    lines = [line.format("kernel", "target", "warps", "registers", "spilled", "shared", "tmem")]
    for row in rows:
        name = f"{row.kernel} ({row.variant})"
        sizes = (row.num_warps, row.registers, row.spilled, row.shared, row.tensor_memory)
        lines.append(line.format(name, f"sm_{row.capability}", *sizes))
        lines += [f"  error: {defect}" for defect in row.defects()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, print, and return 1 if a kernel has a defect."""
    parser = argparse.ArgumentParser(description="Compile every Triton kernel without a GPU.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    options = parser.parse_args(arguments)
    if INTERPRETED:
        raise InklingError(
            "`TRITON_INTERPRET` is set, kernels are compiled only without it",
            hint="env -u TRITON_INTERPRET python -m inkling_runtime.ops.kernels.compile_all",
        )
    rows = _compile_in_parallel(list_variants())
    sys.stdout.write(format_table(rows) + "\n")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return int(any(row.defects() for row in rows))


def _compile_in_parallel(variants: Sequence[tuple[str, str]]) -> list[Usage]:
    tasks = [(*variant, capability) for variant in variants for capability in SHARED_LIMITS]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        return [
            row for rows in pool.map(compile_variant, *zip(*tasks, strict=True)) for row in rows
        ]


def _variants(file: str) -> dict[str, Callable[[], object]]:
    return getattr(importlib.import_module(f"{kernels.__name__}.{file}"), "VARIANTS", {})


def _usage(compiled: Any, file: str, variant: str, capability: int) -> Usage:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compiled.asm["cubin"])
        cubin.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", cubin.name]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    sizes = {name: int(number) for name, number in _USAGE.findall(text)}
    return Usage(
        file=file,
        variant=variant,
        kernel=compiled.metadata.name,
        capability=capability,
        registers=sizes["REG"],
        spilled=sizes["STACK"] + sizes["LOCAL"],
        shared=compiled.metadata.shared,
        tensor_memory=getattr(compiled.metadata, "tmem_size", 0) or 0,
        num_warps=compiled.metadata.num_warps,
    )


if __name__ == "__main__":
    sys.exit(main())
