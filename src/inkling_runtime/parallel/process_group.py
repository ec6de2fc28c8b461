"""The ranks as torch.distributed sees them: gloo between CPUs, NCCL between GPUs.

Objects always go over gloo, so that a command does not pass through a GPU.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from inkling_runtime.errors import InklingError

_TIMEOUT = timedelta(days=7)
"""Workers wait for the next command for as long as rank 0 is idle; a dead peer ends it at once."""


class ProcessGroup:
    """One rank's end of the group (`model.communicator.Communicator`).

    Args:
        meeting: a file that all ranks of this group, and no others, name.
        rank: this process.
        size: how many there are.
        device: what this rank computes on.

    Raises:
        InklingError: this process already is in a group.
    """

    def __init__(self, meeting: Path, rank: int, size: int, device: torch.device) -> None:
        if dist.is_initialized():
            raise InklingError(
                "this process already holds a model over several ranks",
                "close it first, or use another process",
            )
        self.rank = rank
        self.size = size
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=_TIMEOUT
        )
        self._objects = dist.group.WORLD
        self._tensors = self._objects
        self._widths: list[int] = []
        if device.type == "cuda":
            torch.cuda.set_device(device)
            self._tensors = dist.new_group(backend="nccl")

    def all_reduce(self, x: Tensor) -> Tensor:
        """Return the sum of x over all ranks, in place."""
        dist.all_reduce(x, group=self._tensors)
        return x

    def join_columns(self, x: Tensor) -> Tensor:
        """Return the columns of all ranks side by side; each rank always has as many."""
        if not self._widths:
            self._widths = [0] * self.size
            dist.all_gather_object(self._widths, x.shape[1], group=self._objects)
        padded = x.new_zeros(x.shape[0], max(self._widths))
        padded[:, : x.shape[1]] = x
        parts = [torch.empty_like(padded) for _ in self._widths]
        dist.all_gather(parts, padded, group=self._tensors)
        return torch.cat([p[:, :w] for p, w in zip(parts, self._widths, strict=True)], dim=1)

    def send(self, value: Any) -> None:
        """Give every other rank a value; called on rank 0."""
        dist.broadcast_object_list([value], src=0, group=self._objects)

    def receive(self) -> Any:
        """Return the next value that rank 0 sends."""
        values = [None]
        dist.broadcast_object_list(values, src=0, group=self._objects)
        return values[0]

    def first_error(self, error: InklingError | None) -> InklingError | None:
        """Return the first rank's error in what was just done, the same on every rank.

        Args:
            error: this rank's, if it has one.
        """
        errors: list[tuple[str, str | None] | None] = [None] * self.size
        own = None if error is None else (error.message, error.hint)
        dist.all_gather_object(errors, own, group=self._objects)
        for rank, found in enumerate(errors):
            if found is not None:
                message, hint = found
                return InklingError(f"rank {rank} of {self.size}: {message}", hint)
        return None

    def close(self) -> None:
        """Leave the group."""
        dist.destroy_process_group()
