"""From a model's folder to an executor: the same on every rank, which holds its part."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.sites import HEAD_SITE, Site
from inkling_runtime.engine.executor import Executor
from inkling_runtime.lora.adapter_table import AdapterTable
from inkling_runtime.lora.load import Cut
from inkling_runtime.model.checkpoint import load_checkpoint
from inkling_runtime.model.inkling import Inkling
from inkling_runtime.model.parameters import dimensions
from inkling_runtime.model.ranks import ALONE, Ranks
from inkling_runtime.model.shard import Shard
from inkling_runtime.ops.native import library
from inkling_runtime.ops.native.library import CompileMode

BUILD_FROM = 256 << 20
"""Bytes of weights from which a model gains more by compiled kernels than their building takes."""


@dataclass(frozen=True, slots=True)
class ModelOrder:
    """Which model is to be built, and how."""

    folder: Path
    spec: ModelSpec
    device: torch.device
    dtype: torch.dtype
    num_slots: int
    """Adapters on the device at a time."""
    compile_mode: CompileMode
    """Whether the compiled CPU kernels are used."""


def build_executor(order: ModelOrder, ranks: Ranks = ALONE) -> Executor:
    """Return an executor of a model, or of one rank's part of it; it has no cache yet.

    Raises:
        InklingError: the checkpoint is not the model's, or the kernels are asked for in vain.
    """
    if order.device.index is not None and order.device.type == "cuda":
        torch.cuda.set_device(order.device)  # where kernels are launched
    spec, shard = order.spec, ranks.shard
    checkpoint = load_checkpoint(order.folder, spec, order.device, order.dtype, shard)
    notes = list(checkpoint.notes)
    if order.device.type == "cpu":
        is_large = sum(weight.nbytes for weight in checkpoint.weights.values()) >= BUILD_FROM
        notes += filter(None, [library.enable(order.compile_mode, may_build=is_large)])
    adapters = AdapterTable(spec, order.num_slots, order.device, order.dtype, _cut_of(spec, shard))
    local = replace(spec, layers=tuple(shard.local_layer(layer) for layer in spec.layers))
    model = Inkling(spec, checkpoint.weights, ranks)
    return Executor(model, adapters, local, notes)


def _cut_of(spec: ModelSpec, shard: Shard) -> Cut | None:
    """Return how the factors of an adapter are cut for a rank; None: not at all."""
    if shard.size == 1:
        return None

    def cut(site: Site, a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        layer = None if site == HEAD_SITE else spec.layers[site.layer]
        return shard.cut_factors(site.kind, a, b, dimensions(spec, layer))

    return cut
