"""Running both sides in turn: what is timed, on which prompts, and what is noted of it.

Which side goes first changes from round to round, so that both meet the same machine; prompts are
new in every round, so that no side can have them in a cache.
"""

import statistics
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from generation.models import ModelFiles, ModelSizes
from generation.worker_process import Worker

WARM_UP_TOKENS = 3
Settings = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Case:
    """What is timed: a side in one of the processes, with its adapter applied or not."""

    label: str
    side: str
    worker: str
    is_adapted: bool


BASE = Case("inkling", "inkling", "inkling", False)
PEER_BASE = Case("transformers", "transformers", "transformers", False)
UNUSED = Case("inkling, adapter unused", "inkling", "inkling + adapter", False)
ADAPTED = Case("inkling + adapter", "inkling", "inkling + adapter", True)
PEER_ADAPTED = Case("transformers + PEFT", "transformers", "transformers + PEFT", True)
CASES = (BASE, PEER_BASE, UNUSED, ADAPTED, PEER_ADAPTED)
"""`unused`: a request for the base model in the process that has the adapter loaded."""


@contextmanager
def started(ours: Settings, theirs: Settings) -> Iterator[dict[str, Worker]]:
    """Give the process of every case and one that reads memory; they import while one waits."""
    settings = {"inkling": ours, "transformers": theirs}
    sides = {case.worker: case.side for case in CASES}
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(Worker(side, settings[side])) for name, side in sides.items()
        }
        workers["memory"] = stack.enter_context(Worker("memory", {}))
        yield workers


def load(workers: Mapping[str, Worker], files: ModelFiles) -> tuple[int, list[str]]:
    """Let every process load what it works on; return how many threads it uses, and our notes."""
    memory = workers["memory"].call("load", megabytes=files.sizes.read_mb)
    model, notes = {"model": str(files.model), "dtype": files.dtype}, []
    for case in (BASE, PEER_BASE, ADAPTED, PEER_ADAPTED):
        adapter = str(files.adapter) if case.is_adapted else None
        notes += workers[case.worker].call("load", **model, adapter=adapter).get("notes", [])
    return int(memory["threads"]), list(dict.fromkeys(notes))


@dataclass(slots=True)
class Rounds:
    """The times of all cases at all batch sizes, for one dtype."""

    files: ModelFiles
    workers: Mapping[str, Worker]
    new_tokens: int
    """For each prompt; PEFT may make fewer (`ModelSizes.peft_new_tokens`)."""
    random: Random = field(default_factory=lambda: Random(1))
    times: dict[tuple[int, Case], list[dict[str, float]]] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    """Rates at which memory was read, in GB/s."""

    @property
    def sizes(self) -> ModelSizes:
        """The model's sizes."""
        return self.files.sizes

    def run(self, count: int) -> None:
        """Run everything once to warm up, and then so many rounds."""
        for batch in self.sizes.batches:
            for case in CASES:
                self._run_case(case, self.prompts(batch), WARM_UP_TOKENS)
        for number in range(count):
            for batch in self.sizes.batches:
                prompts = self.prompts(batch)
                for case in CASES if number % 2 == 0 else reversed(CASES):
                    found = self._run_case(case, prompts, self._tokens_of(case))
                    self.times.setdefault((batch, case), []).append(found)
                self.rates.append(self.workers["memory"].call("read")["gb_per_s"])

    def prompts(self, batch: int) -> list[list[int]]:
        """Return prompts that nobody has seen."""
        ids = range(self.sizes.config["vocab_size"])
        return [self.random.choices(ids, k=self.sizes.prompt_tokens) for _ in range(batch)]

    @property
    def read_gb_per_s(self) -> float:
        """The rate at which memory was read."""
        return statistics.median(self.rates)

    def _tokens_of(self, case: Case) -> int:
        is_slow = case is PEER_ADAPTED
        return min(self.new_tokens, self.sizes.peft_new_tokens) if is_slow else self.new_tokens

    def _run_case(self, case: Case, prompts: list[list[int]], new_tokens: int) -> dict[str, float]:
        worker, is_adapted = self.workers[case.worker], case.is_adapted
        return worker.call("run", prompts=prompts, new_tokens=new_tokens, is_adapted=is_adapted)

    def rows(self) -> list[dict[str, Any]]:
        """Return what was found, a row for each batch size and case."""
        peaks = {case.worker: self.workers[case.worker].call("peak")["mb"] for case in CASES}
        rows = []
        for (batch, case), runs in self.times.items():
            read = self.files.step_bytes(batch, is_adapted=case.is_adapted)
            row = {"dtype": self.files.dtype, "batch": batch, "case": case.label}
            speeds = self._speeds(batch, runs, read)
            rows.append({**row, **speeds, "peak_mb": peaks[case.worker], "runs": runs})
        return rows

    def _speeds(self, batch: int, runs: list[dict[str, float]], read: int) -> dict[str, float]:
        first = statistics.median(run["first_token_s"] for run in runs)
        decode = statistics.median(run["decode_tokens"] / run["decode_s"] for run in runs)
        return {
            "first_token_s": first,
            "prefill_tokens_per_s": batch * self.sizes.prompt_tokens / first,
            "decode_tokens_per_s": decode,
            "step_read_mb": read / 1e6,
            "share_of_limit": decode / batch * read / self.read_gb_per_s / 1e9,
        }
