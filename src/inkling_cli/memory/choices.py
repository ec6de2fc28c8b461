"""What each choice of a launch costs: the same server with one thing changed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from inkling_cli.memory.setup import SGLANG_TARGETS, Setup
from inkling_cli.memory.sizes import Sizes, sizes_of
from inkling_runtime.adapter.model_spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Choice:
    """One change of a launch.

    Attributes:
        words: the option as it would be written.
        sizes: the server with it.
        note: what else it means; empty where nothing.
    """

    words: str
    sizes: Sizes
    note: str = ""


def choices_of(spec: ModelSpec, setup: Setup, adapter_limit: int | None) -> tuple[Choice, ...]:
    """Return what could be chosen otherwise.

    Args:
        spec: the base model.
        setup: the server as it is.
        adapter_limit: the smallest rank limit that its adapters need, if that is known.
    """
    makers: list[Callable[[], Iterator[tuple[str, Setup, str]]]] = [
        lambda: _tensor(spec, setup),
        lambda: _experts(spec, setup),
    ]
    if setup.has_lora:
        makers = [
            lambda: _ranks(setup, adapter_limit),
            lambda: _slots(setup),
            lambda: _layouts(setup),
            lambda: _sharding(setup),
            lambda: _targets(setup),
            *makers,
        ]
    return tuple(
        Choice(words, sizes_of(spec, changed), note)
        for maker in makers
        for words, changed, note in maker()
    )


def _ranks(setup: Setup, limit: int | None) -> Iterator[tuple[str, Setup, str]]:
    if limit is not None and limit < setup.max_rank:
        yield f"--max-lora-rank {limit}", replace(setup, max_rank=limit), "enough for the adapters"


def _slots(setup: Setup) -> Iterator[tuple[str, Setup, str]]:
    option = "--max-loras" if setup.engine == "vllm" else "--max-loras-per-batch"
    for count in (setup.num_slots - 1, setup.num_slots + 1):
        if count > 0:
            yield f"{option} {count}", replace(setup, num_slots=count), ""


def _layouts(setup: Setup) -> Iterator[tuple[str, Setup, str]]:
    changed = replace(setup, is_shared_outer=not setup.is_shared_outer)
    vllm = setup.engine == "vllm"
    option = "--enable-moe-shared-loras" if vllm else "--experts-shared-outer-loras"
    if setup.is_shared_outer:
        option = f"--no-{option.removeprefix('--')}"
        yield option, changed, "for per-expert adapters"
    else:
        yield option, changed, "for shared-outer adapters"


def _sharding(setup: Setup) -> Iterator[tuple[str, Setup, str]]:
    if setup.engine != "vllm" or setup.parallel.tensor == 1 or setup.parallel.expert > 1:
        return
    changed = replace(setup, is_fully_sharded=not setup.is_fully_sharded)
    if setup.is_fully_sharded:
        yield "--no-fully-sharded-loras", changed, "applies q, k, v and r"
    else:
        yield "--fully-sharded-loras", changed, "drops q, k, v and r silently"


def _targets(setup: Setup) -> Iterator[tuple[str, Setup, str]]:
    targets = setup.targets or SGLANG_TARGETS
    if setup.engine == "sglang" and "embed_tokens" in targets:
        kept = tuple(target for target in targets if target != "embed_tokens")
        words = f"--lora-target-modules {' '.join(kept)}"
        yield words, replace(setup, targets=kept), "no embedding"


def _tensor(spec: ModelSpec, setup: Setup) -> Iterator[tuple[str, Setup, str]]:
    option = "--tensor-parallel-size" if setup.engine == "vllm" else "--tp-size"
    ranks = setup.parallel.tensor
    for count in [ranks // 2] * (ranks % 2 == 0) + [ranks * 2]:
        if _can_be_divided(spec, setup, count):
            yield f"{option} {count}", setup.with_tensor(count), ""


def _can_be_divided(spec: ModelSpec, setup: Setup, ranks: int) -> bool:
    """Return whether an engine takes a tensor parallel size.

    vLLM's convolution cache needs a K/V head on every rank.
    """
    for layer in spec.layers:
        if layer.num_heads % ranks or (setup.engine == "vllm" and ranks > layer.num_kv_heads):
            return False
    return True


def _experts(spec: ModelSpec, setup: Setup) -> Iterator[tuple[str, Setup, str]]:
    ranks = setup.parallel.ranks
    if ranks == 1 or spec.num_experts % ranks or setup.is_fully_sharded:
        return
    is_on = setup.parallel.expert > 1
    if setup.engine == "vllm":
        words = f"--{'no-' * is_on}enable-expert-parallel"
    else:
        words = f"--ep-size {1 if is_on else ranks}"
    note = "whole experts on each rank" if not is_on else "every expert divided over the ranks"
    yield words, setup.with_expert_parallel(not is_on), note
