"""Two adapters compared as the library does it, and pairs of adapters that differ in one thing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from conversion import spec_of

from factories import TINY, write_released_adapter
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.comparison import plan_comparison
from inkling_runtime.adapter.difference import Difference, Fate, ModuleDifference
from inkling_runtime.adapter.distance import measure_difference
from inkling_runtime.adapter.model_spec import ModelSpec

SPEC = spec_of(TINY)
DIALECTS = ("tinker", "vllm", "sglang", "peft")
PAIRS = [(source, target) for source in DIALECTS for target in DIALECTS]
ROUTED = "language_model.layers.2.mlp.experts"
QUERY = "language_model.layers.1.attn.wq_du"

Tensors = dict[str, torch.Tensor]


def compare(
    first: Path,
    second: Path,
    spec: ModelSpec | None = SPEC,
    dialects: tuple[str | None, str | None] = (None, None),
) -> Difference:
    adapters = (read_adapter(first, dialects[0]), read_adapter(second, dialects[1]))
    return measure_difference(plan_comparison(*adapters, spec))


def by_site(difference: Difference) -> dict[str, ModuleDifference]:
    return {str(module.site): module for module in difference.modules}


def fates(difference: Difference) -> set[Fate]:
    return {module.delta.fate for module in difference.modules}


def apart(difference: Difference) -> dict[str, ModuleDifference]:
    """Return the modules that are not proven equal."""
    return {str(module.site): module for module in difference.beyond(0.0)}


def normal(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> torch.Tensor:
    width = {"BF16": torch.bfloat16, "F32": torch.float32}[dtype]
    return torch.from_numpy(rng.standard_normal(shape)).to(width)


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def edited(tmp_path: Path, edit: Callable[[Tensors], None], **changes: Any) -> tuple[Path, Path]:
    """Return a released adapter and the same with an edit and other settings."""
    first = write_released_adapter(tmp_path / "first", fill=normal)
    return first, write_released_adapter(tmp_path / "second", fill=normal, edit=edit, **changes)


def add_to(name: str, index: tuple[int, ...], value: float) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        tensors[name][index] += value

    return edit


def drop_query(tensors: Tensors) -> None:
    for name in [name for name in tensors if name.startswith(QUERY)]:
        del tensors[name]
