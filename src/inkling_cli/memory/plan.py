"""The memory of one server, put together: what is where, whether it fits, what choices cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from inkling_cli.memory.adapter_size import adapter_elements
from inkling_cli.memory.choices import Choice, choices_of
from inkling_cli.memory.setup import Setup
from inkling_cli.memory.sizes import SHOWN_LENGTH, Fit, Sizes, fit, sizes_of
from inkling_cli.memory.slots import BYTES_PER_ELEMENT
from inkling_runtime.adapter.model_spec import ModelSpec


@dataclass(frozen=True, slots=True)
class AdapterSize:
    """An adapter that was read: its size as a file, and in the host memory of one worker."""

    name: str
    rank: int
    disk_bytes: int
    host_bytes: int


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """The memory of one server.

    Attributes:
        sizes: what one rank holds.
        adapters: those of the launch that were read.
        released_bytes: an adapter of the rank limit that adapts every module, in bf16.
        choices: what could be chosen otherwise.
        length: tokens of the sequence whose cache is told.
        fit: how it fits on a GPU, where its memory is given.
    """

    sizes: Sizes
    adapters: tuple[AdapterSize, ...]
    released_bytes: int
    choices: tuple[Choice, ...]
    length: int
    fit: Fit | None = None

    @property
    def host_bytes(self) -> int:
        """The adapters in the host memory of one worker: the largest known, then released ones."""
        count = self.sizes.setup.host_adapters if self.sizes.setup.has_lora else 0
        known = sorted((adapter.host_bytes for adapter in self.adapters), reverse=True)[:count]
        return sum(known) + (count - len(known)) * self.released_bytes

    @property
    def num_workers(self) -> int:
        """The workers of the server (of one replica), each with its own host memory."""
        parallel = self.sizes.setup.parallel
        return parallel.tensor * parallel.pipeline


def plan_server(
    spec: ModelSpec,
    setup: Setup,
    adapters: Sequence[AdapterSize] = (),
    adapter_limit: int | None = None,
    gpu_bytes: int | None = None,
) -> ServerPlan:
    """Return the plan of a server.

    Args:
        spec: the base model.
        setup: what decides its memory.
        adapters: the adapters that were read.
        adapter_limit: the smallest rank limit that they need, if that is known.
        gpu_bytes: the memory of each GPU, if it is to be judged.
    """
    sizes = sizes_of(spec, setup)
    elements = adapter_elements(spec, setup.max_rank, is_shared_outer=setup.is_shared_outer)
    length = min(SHOWN_LENGTH, setup.context)
    return ServerPlan(
        sizes=sizes,
        adapters=tuple(adapters),
        released_bytes=BYTES_PER_ELEMENT * elements,
        choices=choices_of(spec, setup, adapter_limit),
        length=length,
        fit=None if gpu_bytes is None else fit(sizes, gpu_bytes, length),
    )
