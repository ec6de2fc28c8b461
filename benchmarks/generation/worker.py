"""One side of bench_generate.py in a process of its own; calls come as lines of JSON on stdin.

    python benchmarks/generation/worker.py inkling|transformers|memory

Not run by hand: `worker_process.py` is the other end. It is a process because its environment must
be set before torch is imported, and because its peak memory shall be its own.
"""

import json
import os
import sys
import time
import traceback
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np


class Calls:
    """What the other end may ask for."""

    def __init__(self, side: Any) -> None:
        self.side = side

    def load(self, **arguments: Any) -> dict[str, Any]:
        """Load what the side works on."""
        return self.side.load(**arguments)

    def read(self) -> dict[str, Any]:
        """Read memory and return the rate."""
        return self.side.read()

    def logits(self, prompt: list[int], is_adapted: bool, path: str) -> dict[str, Any]:
        """Write the logits after every token of a prompt to a file."""
        np.save(path, self.side.logits(prompt, is_adapted).numpy())
        return {}

    def run(self, prompts: list[list[int]], new_tokens: int, is_adapted: bool) -> dict[str, Any]:
        """Continue all prompts and return the times."""
        begin = time.perf_counter()
        stamps = self.side.stamps(prompts, new_tokens, is_adapted)
        assert len(stamps) == len(prompts) * new_tokens, f"{len(stamps)} tokens"
        return times_of([(index, now - begin) for index, now in stamps])

    def peak(self) -> dict[str, Any]:
        """Return the process's own peak memory."""
        status = Path("/proc/self/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return {"mb": int(line.split()[1]) / 1024}


def times_of(stamps: list[tuple[int, float]]) -> dict[str, Any]:
    """Return the seconds until every prompt has its first token, and what came after.

    Prompts that are read early go on while the last one is read: their tokens of that time count
    in neither part.
    """
    first: dict[int, float] = {}
    for index, now in stamps:
        first.setdefault(index, now)
    all_started = max(first.values())
    later = [now for _, now in stamps if now > all_started]
    return {
        "first_token_s": all_started,
        "decode_s": later[-1] - all_started,
        "decode_tokens": len(later),
    }


def main(side: str) -> None:
    """Answer calls until stdin ends. What libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    calls = Calls(import_module(f"side_{side}").Side())
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = getattr(calls, name)(**arguments)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
