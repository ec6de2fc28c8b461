"""Captured decode steps: equal to eager ones, and adapters are swapped without a new capture."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from gpu_layer.checks import TOLERANCES, Check
from gpu_layer.sizes import Setup, decode_step, random_factors
from inkling_runtime.engine.batch import BatchBuilder
from inkling_runtime.engine.cuda_graph import DecodeGraphs, Replay
from inkling_runtime.engine.step_input import StepInput


def check_graphs(
    setup: Setup, rank: int, record: Callable[[Callable[[], Tensor]], Replay] | None
) -> Iterator[Check]:
    """Yield the checks; slot 1 has another adapter afterwards.

    Args:
        setup: a layer with adapters in both slots, and room for four sequences.
        rank: of the adapters.
        record: how graphs are made; None: as CUDA graphs.
    """
    graphs = DecodeGraphs(setup.model, setup.cache, setup.adapters, record)
    some, none = decode_step(setup, (0, -1, 1, -1)), decode_step(setup, (-1,) * 4)
    mixed = _replayed(graphs, some)
    yield _compare("graph, mixed adapters", mixed, _eager(setup, some))
    base = _replayed(graphs, none)
    yield _compare("graph, no adapter", base, _eager(setup, none))
    yield _same("row without an adapter in a mixed graph (bits)", mixed[1], base[1])
    captured = len(graphs)
    setup.adapters.load(1, random_factors(setup, rank, seed=9))
    swapped = _replayed(graphs, some)
    yield _compare("graph after a swap", swapped, _eager(setup, some))
    yield _same("graph after a swap, the other adapter's row (bits)", swapped[0], mixed[0])
    changed = not torch.equal(swapped[2], mixed[2])
    yield Check("the swap changes the swapped adapter's row", 0.0 if changed else 1.0, 0.0)
    yield Check("captures that the swap took", float(len(graphs) - captured), 0.0)


def _replayed(graphs: DecodeGraphs, step: StepInput) -> Tensor:
    hidden = graphs.forward(step)
    assert hidden is not None
    return hidden.clone()


def _eager(setup: Setup, step: StepInput) -> Tensor:
    has_adapters = any(slot >= 0 for slot in step.adapters)
    lora = setup.adapters.layers if has_adapters else [{}]
    batch = BatchBuilder(setup.device).build(step)
    return setup.model.forward(batch, setup.cache.layers, lora)


def _compare(name: str, got: Tensor, want: Tensor) -> Check:
    """Compare a replay with an eager run, for which a library may take another algorithm."""
    error = (got.float() - want.float()).abs().max() / want.float().abs().max()
    return Check(name, error.item(), TOLERANCES[got.dtype])


def _same(name: str, got: Tensor, want: Tensor) -> Check:
    """Compare two replays exactly."""
    return Check(name, (got.float() - want.float()).abs().max().item(), 0.0)
