"""What one rank of a server holds, and whether a GPU has room for it.

Per rank, everywhere. With pipeline stages the figures are those of the stage that takes most.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from inkling_cli.memory import sglang, vllm
from inkling_cli.memory.base import BasePart, base_parts
from inkling_cli.memory.cache import CacheSizes
from inkling_cli.memory.setup import EngineName, Setup
from inkling_cli.memory.slots import SlotPart
from inkling_runtime.adapter.model_spec import ModelSpec

SHOWN_LENGTH = 8192
"""A length of sequences to say a cache's capacity in."""


@dataclass(frozen=True, slots=True)
class Formulas:
    """What one engine computes in its own way."""

    slot_parts: Callable[[ModelSpec, Setup], tuple[SlotPart, ...]]
    cache_sizes: Callable[[ModelSpec, Setup], CacheSizes]
    reserve_bytes: Callable[[Setup, int], int]
    needed_cache_bytes: Callable[[CacheSizes, Setup, int], int]
    num_sequences: Callable[[CacheSizes, Setup, int, int], int]


FORMULAS: dict[EngineName, Formulas] = {
    "vllm": Formulas(
        vllm.slot_parts,
        vllm.cache_sizes,
        vllm.reserve_bytes,
        vllm.needed_cache_bytes,
        vllm.num_sequences,
    ),
    "sglang": Formulas(
        sglang.slot_parts,
        sglang.cache_sizes,
        sglang.reserve_bytes,
        sglang.needed_cache_bytes,
        sglang.num_sequences,
    ),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """What one rank holds, before any GPU is looked at."""

    setup: Setup
    slot: tuple[SlotPart, ...]
    base: tuple[BasePart, ...]
    cache: CacheSizes

    @property
    def slot_bytes(self) -> int:
        """One adapter slot."""
        return sum(part.total_bytes for part in self.slot)

    @property
    def slots_bytes(self) -> int:
        """All adapter slots."""
        return self.slot_bytes * self.setup.num_slots if self.setup.has_lora else 0

    @property
    def base_bytes(self) -> int:
        """The base weights."""
        return sum(part.nbytes for part in self.base)

    @property
    def fixed_bytes(self) -> int:
        """What is there before the first request: base weights and slots."""
        return self.base_bytes + self.slots_bytes


@dataclass(frozen=True, slots=True)
class Fit:
    """A rank's memory on a GPU of a size.

    Attributes:
        gpu_bytes: of the GPU.
        reserve_bytes: what the engine leaves alone or keeps for activations.
        cache_bytes: what is left for the caches; negative where weights and slots are too large.
        needed_cache_bytes: the least that is of use.
        max_slots: the most adapter slots that would fit.
        length: tokens of the sequences that capacity is told in.
        num_sequences: so many of them fit into the cache.
    """

    gpu_bytes: int
    reserve_bytes: int
    cache_bytes: int
    needed_cache_bytes: int
    max_slots: int
    length: int
    num_sequences: int

    @property
    def is_enough(self) -> bool:
        """Whether the server has the memory that it needs."""
        return self.cache_bytes >= self.needed_cache_bytes


def sizes_of(spec: ModelSpec, setup: Setup) -> Sizes:
    """Return what one rank holds (of the stage that holds most)."""
    formulas = FORMULAS[setup.engine]
    stages = [
        Sizes(
            setup,
            formulas.slot_parts(stage, setup) if setup.has_lora else (),
            base_parts(stage, setup),
            formulas.cache_sizes(stage, setup),
        )
        for stage in _stages(spec, setup.parallel.pipeline)
    ]
    return max(stages, key=lambda sizes: sizes.fixed_bytes)


def _stages(spec: ModelSpec, count: int) -> list[ModelSpec]:
    """Return the pipeline stages; left-over layers go to the last stages but one."""
    count = min(max(count, 1), spec.num_layers)
    lengths = [spec.num_layers // count] * count
    for i in range(2, spec.num_layers % count + 2):
        lengths[-i] += 1
    stages, start = [], 0
    for length in lengths:
        stages.append(replace(spec, layers=spec.layers[start : start + length]))
        start += length
    return stages


def fit(sizes: Sizes, gpu_bytes: int, length: int = SHOWN_LENGTH) -> Fit:
    """Return how one rank's memory fits on a GPU; a launch rule may call it."""
    setup, formulas = sizes.setup, FORMULAS[sizes.setup.engine]
    reserve = formulas.reserve_bytes(setup, gpu_bytes)
    needed = formulas.needed_cache_bytes(sizes.cache, setup, gpu_bytes)
    room = gpu_bytes - reserve - sizes.base_bytes
    cache = room - sizes.slots_bytes
    length = min(length, setup.context)
    return Fit(
        gpu_bytes=gpu_bytes,
        reserve_bytes=reserve,
        cache_bytes=cache,
        needed_cache_bytes=needed,
        max_slots=max(room - needed, 0) // sizes.slot_bytes if sizes.slot_bytes else 0,
        length=length,
        num_sequences=formulas.num_sequences(sizes.cache, setup, cache, length),
    )
