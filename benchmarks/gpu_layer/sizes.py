"""One sparse layer with random weights and adapters, at Inkling's real size or at a tiny one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from inkling_runtime.adapter.factors import SiteFactors
from inkling_runtime.adapter.model_spec import LayerSpec, ModelSpec
from inkling_runtime.adapter.sites import HEAD_SITE, Site
from inkling_runtime.cache.cache_tensors import CacheSizes, CacheTensors
from inkling_runtime.engine.step_input import KeyPlaces, StepInput
from inkling_runtime.lora.adapter_table import AdapterTable
from inkling_runtime.model.inkling import Inkling
from inkling_runtime.model.parameters import (
    MODEL_PARAMETERS,
    Held,
    dimensions,
    layer_parameters,
    parse_shape,
)

BLOCK_SIZE = 64
CONTEXT = 1024
"""Tokens that a decoding sequence holds."""


def make_spec(num_experts: int, is_tiny: bool) -> ModelSpec:
    """Return a model of one sliding sparse layer; the vocabulary is small, it is not measured."""
    real = {
        "hidden_size": 6144,
        "heads": 64,
        "kv_heads": 16,
        "dim": 128,
        "extent": 512,
        "width": 3072,
        "top_k": 6,
    }
    tiny = {
        "hidden_size": 48,
        "heads": 4,
        "kv_heads": 2,
        "dim": 16,
        "extent": 8,
        "width": 32,
        "top_k": 2,
    }
    sizes = tiny if is_tiny else real
    layer = LayerSpec(
        index=0,
        is_sliding=True,
        is_dense=False,
        num_heads=sizes["heads"],
        num_kv_heads=sizes["kv_heads"],
        head_dim=sizes["dim"],
        rel_extent=sizes["extent"],
    )
    return ModelSpec(
        model_type="inkling_model",
        architectures=(),
        is_multimodal=False,
        hidden_size=sizes["hidden_size"],
        layers=(layer,),
        d_rel=16,
        sliding_window=sizes["extent"],
        dense_width=4 * sizes["width"],
        expert_width=sizes["width"],
        num_experts=num_experts,
        num_shared_experts=2,
        num_experts_per_token=sizes["top_k"],
        route_scale=8.0,
        vocab_size=512,
        unpadded_vocab_size=500,
        mup_multiplier=24.0,
        rms_norm_eps=1e-6,
        log_scaling_floor=None,
        log_scaling_alpha=0.0,
        conv_kernel_size=4,
        max_positions=1 << 20,
        config={},
    )


@dataclass(frozen=True, slots=True)
class Setup:
    """A model on a device with room for a batch, and its adapter slots."""

    spec: ModelSpec
    model: Inkling
    cache: CacheTensors
    adapters: AdapterTable
    dtype: torch.dtype
    context: int

    @property
    def device(self) -> torch.device:
        """Where everything is."""
        return self.model.device


def make_setup(
    num_experts: int, is_tiny: bool, device: torch.device, dtype: torch.dtype, batch: int
) -> Setup:
    """Return a layer with room for `batch` sequences and two adapter slots."""
    spec = make_spec(num_experts, is_tiny)
    context = 9 if is_tiny else CONTEXT
    layer = spec.layers[0]
    weights = {
        name: _random(parse_shape(p.shape, dimensions(spec)), p.held, device, dtype)
        for name, p in MODEL_PARAMETERS.items()
    }
    letters = dimensions(spec, layer)
    for name, parameter in layer_parameters(layer).items():
        shape = parse_shape(parameter.shape, letters)
        weights[f"layers.0.{name}"] = _random(shape, parameter.held, device, dtype)
    blocks = batch * -(-context // BLOCK_SIZE)
    cache = CacheTensors(spec, CacheSizes(1, blocks, batch + 1, BLOCK_SIZE), device, dtype)
    for tensor in (cache.layers[0].keys, cache.layers[0].values):
        tensor.normal_()
    return Setup(
        spec, Inkling(spec, weights), cache, AdapterTable(spec, 2, device, dtype), dtype, context
    )


def _random(shape: tuple[int, ...], held: Held, device: torch.device, dtype: torch.dtype) -> Tensor:
    kept = dtype if held is Held.MODEL else torch.float32
    tensor = torch.empty(shape, device=device, dtype=kept)
    if len(shape) == 1:
        return tensor.uniform_(0.5, 1.5)
    return tensor.normal_(0.0, shape[-1] ** -0.5)


def random_factors(setup: Setup, rank: int, seed: int) -> dict[Site, SiteFactors]:
    """Return a shared-outer adapter of every site but the head."""
    generator = torch.Generator(setup.device).manual_seed(seed)

    def factor(*shape: int, fan: int) -> np.ndarray:
        values = torch.empty(shape, device=setup.device, dtype=torch.bfloat16)
        values.normal_(0.0, fan**-0.5, generator=generator)
        return values.view(torch.int16).cpu().numpy().view(np.uint16)

    factors = {}
    for site, shape in setup.spec.sites().items():
        if site == HEAD_SITE:
            continue
        outer, inner = ((1,), (shape.experts,)) if shape.experts else ((), ())
        a, b = (inner, outer) if site.kind.is_down else (outer, inner)
        factors[site] = SiteFactors(
            factor(*a, rank, shape.in_features, fan=shape.in_features),
            factor(*b, shape.out_features, rank, fan=rank),
            "BF16",
            0.5,
        )
    return factors


def decode_step(setup: Setup, adapters: Sequence[int]) -> StepInput:
    """Return a step of one token for each of some sequences, all of the same length."""
    batch, per = len(adapters), -(-setup.context // BLOCK_SIZE)
    tables = tuple(tuple(range(i * per, (i + 1) * per)) for i in range(batch))
    last = setup.context - 1
    places = KeyPlaces(
        blocks=tables,
        starts=(0,) * batch,
        lengths=(setup.context,) * batch,
        slot_mapping=tuple(
            row[last // BLOCK_SIZE] * BLOCK_SIZE + last % BLOCK_SIZE for row in tables
        ),
    )
    return StepInput(
        token_ids=tuple((7 * i + 3) % setup.spec.unpadded_vocab_size for i in range(batch)),
        lengths=(1,) * batch,
        adapters=tuple(adapters),
        conv_reads=(0,) * batch,
        conv_writes=tuple(range(1, batch + 1)),
        conv_points=(),
        global_keys=KeyPlaces(((0,),) * batch, (0,) * batch, (1,) * batch, (0,) * batch),
        sliding_keys=places,
    )
