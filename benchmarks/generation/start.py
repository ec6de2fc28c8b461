"""From the start of the process to the first token of `inkling generate`, on the demo model.

The command is timed as it is. What the time goes to is found by other processes, each of which
does what the command does up to some point and then writes a byte: the differences between them
are the parts. Nothing is patched, so nothing is slowed down by being watched.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

LIMIT = 4.0
"""Seconds to the first token on an idle machine."""
_DEMO = Path(str(files("inkling_cli") / "demo_data"))
_MODEL, _ADAPTER = _DEMO / "model", _DEMO / "adapters" / "count-down"
_WORDS = ["generate", _MODEL, "--lora", _ADAPTER, "--prompt", "3 4 5", "--max-tokens", "1"]
_MAIN = "import sys; from inkling_cli.main import main; sys.exit(main(sys.argv[1:]))"

PARTS = {
    "python": "",
    "typer, rich, the command": """
from inkling_cli.main import build_app
build_app(["generate"])
""",
    "the adapter read and checked": f"""
from pathlib import Path
from inkling_cli.generation.asked import plan_adapter
from inkling_runtime.adapter.model_spec import read_model_spec
model = Path({str(_MODEL)!r})
plan = plan_adapter("a", Path({str(_ADAPTER)!r}), read_model_spec(model), None, False)
""",
    "import torch": """
from inkling_runtime.threads import settle_threads
settle_threads()
import torch
""",
    "import the runtime": """
from inkling_runtime.text import TextLLM
from inkling_runtime.adapter.load_factors import LazyFactors
""",
    "the compiled kernels": """
from inkling_runtime.ops.native import library
library.enable("auto")
""",
    "the model": "text_llm = TextLLM(model)\n",
    "the adapter's factors": """
text_llm.llm.load_adapter("a", LazyFactors(plan.applied, text_llm.llm.spec))
""",
}
"""Each part of the way, as the code that walks it after all those above it."""
COMMAND = "inkling generate, first token"
FIRST_START = "the same, nothing in the cache"


def measure_start(runs: int) -> list[dict[str, Any]]:
    """Return rows of label, seconds since the start, and seconds more than the row above.

    Args:
        runs: how often each process is started, in turn; the first time does not count.
    """
    codes, code = {}, ""
    for label, part in PARTS.items():
        code += part
        codes[label] = ["-c", f"{code}\nprint('.', flush=True)"]
    command = ["-c", _MAIN, *map(str, _WORDS)]
    seconds: dict[str, list[float]] = {}
    for _ in range(runs + 1):
        for label, words in codes.items():
            seconds.setdefault(label, []).append(_seconds_to_output(words))
        seconds.setdefault(COMMAND, []).append(_seconds_to_output(command))
        with tempfile.TemporaryDirectory() as cache:
            first = _seconds_to_output(command, cache)
        seconds.setdefault(FIRST_START, []).append(first)
    rows, before = [], 0.0
    for label, found in seconds.items():
        median = statistics.median(found[1:])
        limit = LIMIT if label == COMMAND else None
        rows.append(
            {"part": label, "median_s": median, "more_s": median - before, "limit_s": limit}
        )
        before = median
    return rows


def _seconds_to_output(words: list[str], cache: str = "") -> float:
    """Return the seconds until a process of Python writes its first byte.

    Args:
        words: what follows `python`.
        cache: another folder than the user's to keep the compiled kernels in.
    """
    environment = {**os.environ, **({"XDG_CACHE_HOME": cache} if cache else {})}
    begin = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        is_written = bool(os.read(process.stdout.fileno(), 1))
        elapsed = time.perf_counter() - begin
        process.stdout.read()
    if not is_written or process.returncode != 0:
        raise SystemExit(f"`python {' '.join(words)[:200]}` ended with {process.returncode}")
    return elapsed
