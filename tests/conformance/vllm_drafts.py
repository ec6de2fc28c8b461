"""Adapters as drafts: names, dtypes and shapes of tensors and a config, to be changed and written.

A draft is written with numbers that differ from tensor to tensor, so that an engine's slots show
where each of them landed. Deterministic: the numbers follow from the tensors' names.
"""

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from checks.adapter_folders import (
    Shapes,
    attention_modules,
    modules_for_vllm,
    numbered_modules,
    released_modules,
)
from conformance.vllm_adapters import LAYER, TENSOR_VARIANTS, tensors_of
from conformance.vllm_settings import CONFIG_VARIANTS, DROPPED_KEYS
from inkling_runtime.adapter.safetensors_file import TensorSpec, format_header, sort_for_file

Shape = tuple[int, ...]
CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "r": 2,
    "lora_alpha": 8,
    "target_modules": "all-linear",
}


@dataclass(frozen=True)
class Draft:
    """An adapter that is not written yet.

    Attributes:
        tensors: name → dtype and shape.
        config: of adapter_config.json.
        metadata: of the file.
        first: name → what its first number is, where it is not one like the others.
        spoil: what is done to the folder at last.
    """

    tensors: Mapping[str, tuple[str, Shape]]
    config: Mapping[str, Any] = field(default_factory=lambda: CONFIG)
    metadata: Mapping[str, str] = field(default_factory=dict)
    first: Mapping[str, float] = field(default_factory=dict)
    spoil: Callable[[Path], None] | None = None

    def renamed(self, change: Callable[[str], str]) -> "Draft":
        """Return the draft with each tensor under another name."""
        return replace(self, tensors={change(name): t for name, t in self.tensors.items()})

    def with_tensors(self, shapes: Mapping[str, Shape], dtype: str = "BF16") -> "Draft":
        """Return the draft with further tensors, or with others of the same names."""
        added = {name: (dtype, shape) for name, shape in shapes.items()}
        return replace(self, tensors={**self.tensors, **added})

    def without(self, *parts: str) -> "Draft":
        """Return the draft without the tensors that have any of these parts in their names."""
        kept = {n: t for n, t in self.tensors.items() if not any(part in n for part in parts)}
        return replace(self, tensors=kept)

    def reshaped(self, change: Callable[[str, Shape], Shape]) -> "Draft":
        """Return the draft with other shapes."""
        tensors = {n: (dtype, change(n, shape)) for n, (dtype, shape) in self.tensors.items()}
        return replace(self, tensors=tensors)

    def configured(self, **changes: Any) -> "Draft":
        """Return the draft with other settings; `...` leaves one out."""
        config = {**self.config, **changes}
        return replace(self, config={k: v for k, v in config.items() if v is not ...})


def write_draft(folder: Path, draft: Draft) -> Path:
    """Write an adapter's folder and return it."""
    folder.mkdir(parents=True)
    specs = sort_for_file(TensorSpec(n, dtype, s) for n, (dtype, s) in draft.tensors.items())
    data = b"".join(_numbers(spec, draft.first.get(spec.name)) for spec in specs)
    (folder / "adapter_model.safetensors").write_bytes(format_header(specs, draft.metadata) + data)
    (folder / "adapter_config.json").write_text(json.dumps(dict(draft.config)))
    if draft.spoil is not None:
        draft.spoil(folder)
    return folder


def _numbers(spec: TensorSpec, first: float | None) -> bytes:
    chosen = np.random.default_rng(zlib.crc32(spec.name.encode()))
    values = chosen.uniform(0.5, 2.0, prod(spec.shape)) * chosen.choice([-1, 1], prod(spec.shape))
    if first is not None and values.size:
        values[0] = first
    single = values.astype(np.float32)
    if spec.dtype == "BF16":
        return (single.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    if spec.dtype.startswith("F8"):
        return (chosen.integers(0x20, 0x60, prod(spec.shape))).astype(np.uint8).tobytes()
    kinds = {"F16": np.float16, "F32": np.float32, "F64": np.float64, "I8": np.int8}
    return (single * 8 if spec.dtype == "I8" else values).astype(kinds[spec.dtype]).tobytes()


def draft_of(modules: Shapes) -> Draft:
    """Return a draft of modules in bfloat16."""
    return Draft({name: ("BF16", shape) for name, shape in tensors_of(modules).items()})


def _one_by_one() -> Shapes:
    others = {k: v for k, v in modules_for_vllm(2).items() if ".mlp.experts." not in k}
    return {**others, **numbered_modules(2)}


def _packed_alone() -> Draft:
    packed = {n: s for n, s in TENSOR_VARIANTS["packed"].items() if ".mlp.experts" in n}
    draft = Draft({n: ("BF16", s) for n, s in packed.items()})
    draft = draft.renamed(lambda name: name.replace(LAYER, "base_model.model.model.layers."))
    parameters = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    return draft.configured(target_parameters=parameters)


STARTS: dict[str, Draft] = {
    "vllm": draft_of(modules_for_vllm(2)),
    "released": draft_of(released_modules(2)),
    "one-by-one": draft_of(_one_by_one()),
    "attention": draft_of(attention_modules(2)),
    "packed-alone": _packed_alone(),
    "packed-empty": _packed_alone().reshaped(
        lambda n, s: (0, s[1]) if n.endswith("1.mlp.experts.lora_A.weight") else s
    ),
    **{
        f"shapes {name}": Draft({n: ("BF16", s) for n, s in shapes.items()})
        for name, shapes in TENSOR_VARIANTS.items()
    },
    **{
        f"config {name}": draft_of(modules_for_vllm(2)).configured(**changes)
        for name, changes in CONFIG_VARIANTS.items()
    },
    **{
        f"config {name}": draft_of(modules_for_vllm(2)).configured(**{key: ...})
        for name, key in DROPPED_KEYS.items()
    },
}
"""Adapters to begin with: forms without a fault, and each variant that launches are tried with."""
