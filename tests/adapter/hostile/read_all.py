"""Run commands that read adapters on the adapters given, and say how each run ended.

A program of its own, so that its memory can be limited and measured: `read_all.py MODEL COMMANDS
ADAPTER...` prints a line of JSON for each run; COMMANDS are names with commas between them.
"""

import contextlib
import io
import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from inkling_cli.main import main

MEMORY_LIMIT = 4 * 2**30


def commands(model: str, adapter: str) -> Iterator[list[str]]:
    """Yield the command lines that read an adapter."""
    lora, load = f"a={adapter}", ["check-config", "--model", model]
    yield ["inspect", adapter]
    yield ["inspect", adapter, "--model", model]
    yield ["check-adapter", adapter]
    yield ["check-adapter", adapter, "--model", model, "--values"]
    yield ["convert-adapter", adapter, "--to", "vllm", "-o", f"{adapter}-out"]
    yield ["resize", adapter, "--rank", "1", "-o", f"{adapter}-rank"]
    yield ["merge", adapter, adapter, "-o", f"{adapter}-sum"]
    yield ["diff", adapter, adapter]
    yield [*load, "--", "vllm", "serve", model, "--enable-lora", "--lora-modules", lora]
    yield [*load, "--lora", lora, "--", "vllm", "serve", model, "--enable-lora"]
    yield [*load, "--", "sglang", "serve", "--model-path", model, "--lora-paths", lora]
    yield ["plan", "--model", model, "--", "vllm", "serve", model, "--lora-modules", lora]


def peak_bytes() -> int:
    """Return the most memory that this process has had."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def run(arguments: list[str]) -> dict[str, object]:
    """Return how a command ended, what it printed, and the peak so far."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return {
        "command": arguments[0],
        "code": code,
        "stdout": out.getvalue(),
        "stderr": err.getvalue(),
        "peak": peak_bytes(),
    }


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    model, wanted, *adapters = sys.argv[1:]
    for adapter in adapters:
        for arguments in commands(model, adapter):
            if arguments[0] in wanted.split(","):
                sys.stdout.write(json.dumps({"adapter": adapter} | run(arguments)) + "\n")
                sys.stdout.flush()
