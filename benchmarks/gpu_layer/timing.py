"""The time of a decode step of one layer against the bytes that it must read."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

import inkling_runtime.model.moe as moe_module
from gpu_layer.sizes import BLOCK_SIZE, Setup, decode_step
from inkling_runtime.engine.batch import BatchBuilder
from inkling_runtime.engine.cuda_graph import Replay, width_of
from inkling_runtime.engine.static_batch import StaticBatch, pad_step
from inkling_runtime.ops.kernels.launch import count_launches

PEAK_BYTES_PER_SECOND = 4.8e12
"""Of an H200."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One batch size, without adapters or with one."""

    batch: int
    rank: int
    """0: without an adapter."""
    experts_read: int
    megabytes: float
    """That a step reads: weights, factors, keys and values."""
    microseconds: float
    launches: int
    """Of Triton kernels; library calls are the same with and without adapters."""

    @property
    def share_of_peak(self) -> float:
        """Of `PEAK_BYTES_PER_SECOND`."""
        return self.megabytes * 1e6 / (self.microseconds * 1e-6) / PEAK_BYTES_PER_SECOND


def time_step(
    setup: Setup,
    slots: Sequence[int],
    rank: int,
    record: Callable[[Callable[[], Tensor]], Replay],
    repeats: int,
) -> Timing:
    """Return the time of a step whose sequences have these adapter slots."""
    step = decode_step(setup, slots)
    has_adapters = any(slot >= 0 for slot in slots)
    lora = setup.adapters.layers if has_adapters else [{}]
    batch = BatchBuilder(setup.device).build(step)
    with count_launches() as launches, _experts_seen() as seen:
        setup.model.forward(batch, setup.cache.layers, lora)
    widths = (width_of(step.global_keys), width_of(step.sliding_keys))
    inputs = StaticBatch(len(slots), widths, False, has_adapters, setup.device)
    inputs.fill(pad_step(step, len(slots), setup.cache.scratch, BLOCK_SIZE))
    replay = record(lambda: setup.model.forward(inputs.batch, setup.cache.layers, lora))
    distinct = len(seen)
    return Timing(
        batch=len(slots),
        rank=rank,
        experts_read=distinct,
        megabytes=_bytes_read(setup, len(slots), distinct, has_adapters) / 1e6,
        microseconds=_time(replay, repeats, setup.device),
        launches=launches.total(),
    )


@contextmanager
def _experts_seen() -> Iterator[set[int]]:
    """Yield the experts that tokens are routed to meanwhile."""
    seen: set[int] = set()
    original = moe_module.route_tokens

    def route(*arguments: object) -> tuple[Tensor, Tensor, Tensor]:
        result = original(*arguments)
        seen.update(result[0].flatten().tolist())
        return result

    moe_module.route_tokens = route
    try:
        yield seen
    finally:
        moe_module.route_tokens = original


def _bytes_read(setup: Setup, batch: int, distinct: int, has_adapters: bool) -> int:
    layer = setup.model.layers[0]
    mlp, attention = layer.mlp, layer.attention
    read = [attention.qkvr.weight, attention.output.weight, attention.profiles]
    read += [mlp.gate, mlp.shared_w13, mlp.shared_w2]
    total = sum(weight.nbytes for weight in read)
    total += distinct * (mlp.w13.nbytes + mlp.w2.nbytes) // mlp.w13.shape[0]
    seen = min(setup.context, setup.spec.sliding_window)
    heads = setup.spec.layers[0]
    total += (
        2
        * batch
        * seen
        * heads.num_kv_heads
        * heads.head_dim
        * setup.cache.layers[0].keys.element_size()
    )
    if has_adapters:
        for slots in setup.adapters.layers[0].values():
            pair = slots[0]
            for factor in (pair.a, pair.b):
                is_routed = factor.dim() == 3 and len(factor) == setup.spec.num_experts
                total += factor.nbytes * (distinct / len(factor) if is_routed else 1)
    return int(total)


def _time(replay: Replay, repeats: int, device: torch.device) -> float:
    """Return microseconds per call: the median of calls one after the other, one on a CPU."""
    if device.type != "cuda":
        began = time.perf_counter()
        replay()
        return (time.perf_counter() - began) * 1e6
    for _ in range(3):
        replay()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        replay()
        event.record()
    torch.cuda.synchronize()
    times = sorted(a.elapsed_time(b) for a, b in pairwise(events))
    return times[len(times) // 2] * 1e3
