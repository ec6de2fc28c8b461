"""The executor of a model over several ranks: the one of rank 0, and the others told to do alike.

The same methods as `engine.executor.Executor`. After an error in the middle of a step the ranks
are no longer at the same place, so the executor ends: there is no repair but a new start.
"""

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.cache.cache_tensors import CacheSizes
from inkling_runtime.engine.build import ModelOrder
from inkling_runtime.engine.step_input import StepInput
from inkling_runtime.errors import InklingError
from inkling_runtime.model.shard import Shard, require_shardable
from inkling_runtime.parallel.process_group import ProcessGroup
from inkling_runtime.parallel.worker import CHECKED, WorkerOrder, join_ranks

_GRACE = 5
"""Seconds that a worker has to end by itself."""


class ParallelExecutor:
    """Runs steps of a model over several ranks.

    Args:
        order: the model; its device is rank 0's.
        size: number of ranks.
        expert_parallel: routed experts are dealt out whole.

    Raises:
        InklingError: the model cannot be cut so, or some rank cannot build its part.
    """

    def __init__(self, order: ModelOrder, size: int, *, expert_parallel: bool = False) -> None:
        require_shardable(order.spec, size, expert_parallel=expert_parallel)
        self._folder = tempfile.TemporaryDirectory(prefix="inkling-ranks-")
        meeting = Path(self._folder.name) / "meeting"
        threads = max(1, torch.get_num_threads() // size)
        first, *others = (
            WorkerOrder(
                replace(order, device=_device_of(order.device, rank)),
                Shard(rank, size, expert_parallel),
                meeting,
                threads,
            )
            for rank in range(size)
        )
        self._workers: list[subprocess.Popen[bytes]] = []
        self._group: ProcessGroup | None = None
        try:
            for other in others:
                self._workers.append(_start(other))
            self._require_ready()
            self._group, self._local = join_ranks(first)
        except BaseException:
            self.close()
            raise

    @property
    def spec(self) -> ModelSpec:
        """Sizes of rank 0's part of the model; the others' are the same."""
        return self._local.spec

    @property
    def notes(self) -> Sequence[str]:
        """What the user should know about the checkpoint."""
        return self._local.notes

    def allocate(self, sizes: CacheSizes) -> None:
        """Make the cache (see `Executor`)."""
        self._all("allocate", sizes)

    def forward(self, step: StepInput) -> None:
        """Compute a step (see `Executor`)."""
        self._all("forward", step)

    def logits(self, rows: Sequence[int], adapters: Sequence[int]) -> Tensor:
        """Return logits (see `Executor`)."""
        logits: Tensor = self._all("logits", rows, adapters)
        return logits

    def load(self, slot: int, factors: Mapping[Any, Any]) -> None:
        """Load an adapter (see `Executor`)."""
        self._all("load", slot, factors)

    def clear(self, slot: int) -> None:
        """Empty an adapter slot (see `Executor`)."""
        self._all("clear", slot)

    def close(self) -> None:
        """End all ranks but this one."""
        if self._group is not None:
            with suppress(RuntimeError):
                self._group.send(None)
        self._end(kill=self._group is None)

    def _end(self, *, kill: bool) -> None:
        """Leave the group and see every worker end, by itself if it can."""
        group, self._group = self._group, None
        if group is not None:
            with suppress(RuntimeError):
                group.close()
        for worker in self._workers:
            if worker.stdout is not None:
                worker.stdout.close()
            if kill:
                worker.kill()
            try:
                worker.wait(_GRACE)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            if worker.stdin is not None:
                with suppress(BrokenPipeError):
                    worker.stdin.close()
        self._workers = []
        self._folder.cleanup()

    def _all(self, method: str, *arguments: Any) -> Any:
        """Call a method on every rank and return this rank's result."""
        if self._group is None:
            raise InklingError("the ranks of this model have ended", "load the model anew")
        first_error = None
        try:
            self._group.send((method, arguments))
            if method not in CHECKED:
                return getattr(self._local, method)(*arguments)
            result, error = self._attempt(method, arguments)
            first_error = self._group.first_error(error)
        except RuntimeError as error:
            raise self._ended(error) from error
        except BaseException:
            # Whatever broke in here, Ctrl-C as well, the others are waiting at another place.
            self._end(kill=True)
            raise
        if first_error is not None:
            raise first_error
        return result

    def _attempt(self, method: str, arguments: tuple[Any, ...]) -> tuple[Any, InklingError | None]:
        """Return this rank's result, or its error."""
        try:
            return getattr(self._local, method)(*arguments), None
        except InklingError as error:
            return None, error

    def _ended(self, error: RuntimeError) -> InklingError:
        """Return the error of ranks that no longer answer."""
        self._end(kill=True)
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        return InklingError(
            f"a rank ended in the middle of a step: {first}", "its own message is above, if any"
        )

    def _require_ready(self) -> None:
        """Wait until every worker is about to meet the others."""
        for rank, worker in enumerate(self._workers, start=1):
            assert worker.stdout is not None
            if worker.stdout.readline() != b"ready\n":
                raise InklingError(
                    f"the process of rank {rank} ended with exit code {worker.wait()} "
                    "before it could meet the others",
                    "its own message is above, if any",
                )


def _start(order: WorkerOrder) -> "subprocess.Popen[bytes]":
    """Return a started worker that has its order; it lives no longer than its standard input.

    A process group of its own keeps the Ctrl-C of a terminal from it, while it starts as well.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": str(order.num_threads)}
    worker = subprocess.Popen(
        [sys.executable, "-m", "inkling_runtime.parallel.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        process_group=0,
    )
    assert worker.stdin is not None
    with suppress(BrokenPipeError):
        pickle.dump(order, worker.stdin)
        worker.stdin.flush()
    return worker


def _device_of(first: torch.device, rank: int) -> torch.device:
    """Return the device of a rank: CPUs share one, each GPU is its own."""
    if first.type != "cuda":
        return first
    index = (first.index or 0) + rank
    if index >= torch.cuda.device_count():
        raise InklingError(
            f"rank {rank} needs the device `cuda:{index}`, "
            f"torch sees {torch.cuda.device_count()} CUDA devices",
            "use fewer ranks",
        )
    return torch.device("cuda", index)
