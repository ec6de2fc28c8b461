"""The process of a rank other than 0: holds its part and does what rank 0 says.

Started as `python -m inkling_runtime.parallel.worker` with a `WorkerOrder` on its standard input.
It decides nothing and prints nothing: an error goes to rank 0 or, where the ranks can no longer
talk, ends the process. Ctrl-C is rank 0's to handle. When that ends, however it does, the pipe to
this process closes, and the process ends.
"""

import os
import pickle
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import torch

from inkling_runtime.engine.build import ModelOrder, build_executor
from inkling_runtime.engine.executor import Executor
from inkling_runtime.errors import InklingError
from inkling_runtime.model.ranks import Ranks
from inkling_runtime.model.shard import Shard
from inkling_runtime.parallel.process_group import ProcessGroup

CHECKED = ("allocate", "load")
"""The methods whose errors every rank reports before anyone goes on."""


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """What a worker has to know before it can meet the others."""

    model: ModelOrder
    shard: Shard
    meeting: Path
    num_threads: int


def join_ranks(order: WorkerOrder) -> tuple[ProcessGroup, Executor]:
    """Meet the other ranks and build this one's part of the model.

    Raises:
        InklingError: some rank cannot; the same on all of them.
    """
    torch.set_num_threads(order.num_threads)
    shard, device = order.shard, order.model.device
    group = ProcessGroup(order.meeting, shard.rank, shard.size, device)
    executor, error = None, None
    try:
        executor = build_executor(order.model, Ranks(shard, group))
    except InklingError as found:
        error = found
    if (first := group.first_error(error)) is not None:
        group.close()
        raise first
    assert executor is not None
    return group, executor


def obey(group: ProcessGroup, executor: Executor) -> None:
    """Do what rank 0 says until it says no more.

    Raises:
        RuntimeError: rank 0 is gone.
    """
    while (command := group.receive()) is not None:
        method, arguments = command
        if method not in CHECKED:
            getattr(executor, method)(*arguments)
            continue
        error = None
        try:
            getattr(executor, method)(*arguments)
        except InklingError as found:
            error = found
        group.first_error(error)  # rank 0 has it, too, and tells the user


def _end_with_rank_0() -> None:
    """End the process when nobody can write to its standard input any more.

    Meeting the others knows no dead peers yet: a rank 0 that is gone by then would be waited for.
    """
    os.read(sys.stdin.fileno(), 1)  # unbuffered: a buffer's lock would outlive the main thread
    os._exit(2)


def main() -> None:
    """Run a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    order: WorkerOrder = pickle.load(sys.stdin.buffer)
    Thread(target=_end_with_rank_0, daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    try:
        obey(*join_ranks(order))
    except InklingError:
        sys.exit(2)
    except RuntimeError as error:
        # A rank that is gone breaks its connections; that is how this one learns of it.
        sys.exit(f"rank {order.shard.rank}: {error}")


if __name__ == "__main__":
    main()
