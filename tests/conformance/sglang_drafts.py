"""An adapter on its way to a folder: tensors by name, config, further files. Numbers are random.

Every number differs from every other, so that one who looks sees where each of them lands.
"""

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from checks.adapter_folders import (
    HIDDEN,
    Shapes,
    attention_modules,
    dense_modules,
    head_modules,
    modules_for_vllm,
    per_expert_modules,
    released_modules,
    shared_expert_modules,
    shared_outer_modules,
)
from inkling_runtime.adapter.safetensors_file import TensorSpec, format_header, sort_for_file

RANK, ALPHA = 3, 6


@dataclass(frozen=True)
class Tensor:
    """A tensor to be written: its shape, dtype, and a number that all elements have, if any."""

    shape: tuple[int, ...]
    dtype: str = "BF16"
    value: float | None = None


@dataclass
class Draft:
    """An adapter that mutations change in place.

    Attributes:
        tensors: of adapter_model.safetensors.
        config: adapter_config.json.
        files: further files → their bytes.
        second: tensors of a second safetensors file; none is written where it is empty.
        spoilers: what is done to the folder at last.
    """

    tensors: dict[str, Tensor]
    config: dict[str, Any]
    files: dict[str, bytes] = field(default_factory=dict)
    second: dict[str, Tensor] = field(default_factory=dict)
    spoilers: list[Callable[[Path], object]] = field(default_factory=list)

    def rename(self, change: Callable[[str], str]) -> None:
        """Rename every tensor."""
        self.tensors = {change(name): tensor for name, tensor in self.tensors.items()}

    def drop(self, *parts: str) -> None:
        """Leave out the tensors in whose names all parts are."""
        self.tensors = {n: t for n, t in self.tensors.items() if not all(p in n for p in parts)}

    def add(self, modules: Shapes) -> None:
        """Add modules, or give those that are there other shapes."""
        self.tensors |= tensors_of(modules)

    def reshape(self, change: Callable[[tuple[int, ...]], tuple[int, ...]], *parts: str) -> None:
        """Change the shapes of tensors in whose names all parts are."""
        for name, tensor in self.tensors.items():
            if all(part in name for part in parts):
                self.tensors[name] = replace(tensor, shape=change(tensor.shape))

    def retype(self, dtype: str, *parts: str) -> None:
        """Change the dtype of tensors in whose names all parts are."""
        for name, tensor in self.tensors.items():
            if all(part in name for part in parts):
                self.tensors[name] = replace(tensor, dtype=dtype)

    def write(self, folder: Path) -> Path:
        """Write the adapter and return its folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "adapter_config.json").write_text(json.dumps(self.config))
        write_tensors(folder / "adapter_model.safetensors", self.tensors)
        if self.second:
            write_tensors(folder / "more.safetensors", self.second)
        for name, data in self.files.items():
            (folder / name).write_bytes(data)
        for spoil in self.spoilers:
            spoil(folder)
        return folder


def tensors_of(modules: Shapes) -> dict[str, Tensor]:
    """Return both factors of modules."""
    return {
        f"{name}.lora_{factor}.weight": Tensor(shape)
        for name, shapes in modules.items()
        for factor, shape in zip("AB", shapes, strict=True)
    }


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file."""
    specs = sort_for_file(TensorSpec(n, t.dtype, t.shape) for n, t in tensors.items())
    data = b"".join(_bytes_of(spec.name, tensors[spec.name]) for spec in specs)
    path.write_bytes(format_header(specs, {}) + data)


def _bytes_of(name: str, tensor: Tensor) -> bytes:
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    numbers = generator.uniform(0.1, 1.0, tensor.shape).astype(np.float32)
    numbers *= generator.choice(np.array([-1, 1], np.float32), tensor.shape)
    if tensor.value is not None:
        numbers[...] = tensor.value
    if tensor.dtype == "BF16":
        return (numbers.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    if tensor.dtype.startswith("F8"):
        return generator.integers(48, 60, tensor.shape).astype(np.uint8).tobytes()
    kinds = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "I32": np.int32}
    if tensor.dtype == "I32":
        numbers = np.round(numbers * 100)
    return numbers.astype(kinds[tensor.dtype]).tobytes()


def _stacks() -> Shapes:
    modules = attention_modules(RANK)
    for name, (a, b) in shared_outer_modules(RANK).items():
        modules[name] = ((4, *a[1:]), (4, *b[1:]))
    return modules


def _runtime() -> Shapes:
    modules = {k: v for k, v in attention_modules(RANK).items() if k.endswith("wo_ud")}
    for layer, key in enumerate((64, 32, 64)):
        shapes = ((RANK, HIDDEN), (128 + 2 * key + 48, RANK))
        modules[f"model.layers.{layer}.attn.qkvr"] = shapes
    prefix = "model.layers.0.mlp."
    modules[f"{prefix}gate_proj"] = modules[f"{prefix}up_proj"] = ((RANK, HIDDEN), (56, RANK))
    modules[f"{prefix}down_proj"] = ((RANK, 56), (HIDDEN, RANK))
    return modules | shared_outer_modules(RANK) | shared_expert_modules(RANK)


def _expanded() -> Shapes:
    modules = per_expert_modules(RANK) | dense_modules(RANK) | head_modules(RANK)
    return {f"base_model.model.{name}": shapes for name, shapes in modules.items()}


def _foreign() -> Shapes:
    modules: Shapes = {}
    for name, shapes in attention_modules(RANK).items():
        name = name.replace("language_model.", "base_model.model.model.language_model.")
        for old, new in zip("qkvro", ("wq_du", "wk_dv", "wv_dv", "wr_du", "wo_ud"), strict=True):
            name = name.replace(f"attn.{new}", f"self_attn.{old}_proj")
        modules[name] = shapes
    prefix = "base_model.model.model.language_model.layers."
    for layer in (1, 2):
        wide, narrow = (4 * RANK, HIDDEN), (40, 4 * RANK)
        modules[f"{prefix}{layer}.mlp.experts.base_layer"] = (wide, narrow)
        modules[f"{prefix}{layer}.mlp.experts"] = ((4 * RANK, 20), (HIDDEN, 4 * RANK))
    return modules


BASES: Mapping[str, Callable[[], Shapes]] = {
    "released": lambda: released_modules(RANK),
    "vllm": lambda: modules_for_vllm(RANK),
    "runtime": _runtime,
    "numbered": lambda: per_expert_modules(RANK) | dense_modules(RANK),
    "stacks": _stacks,
    "expanded": _expanded,
    "foreign": _foreign,
    "attention": lambda: attention_modules(RANK),
    "experts": lambda: shared_outer_modules(RANK),
}
"""Forms of a whole adapter, or of a part of one, by name."""


def draft(base: str) -> Draft:
    """Return an adapter of one of the forms, without a fault but that of its form."""
    config = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": ALPHA,
        "target_modules": "all-linear",
    }
    return Draft(tensors_of(BASES[base]()), config)
