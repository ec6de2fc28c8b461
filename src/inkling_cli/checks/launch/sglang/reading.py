"""An adapter as SGLang has it once it has read it: its layers under the runtime's names.

No rules here.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.sglang.merged_factors import (
    Layer,
    UnfitError,
    merge_layer,
    split_layers,
)
from inkling_cli.checks.launch.sglang.served_model import served_spec
from inkling_cli.checks.launch.sglang.weights import stored_tensors
from inkling_cli.checks.launch.subject import LaunchSubject

_NUMBERED = re.compile(r"experts\.\d+\.")


@dataclass(frozen=True, slots=True, eq=False)
class ReadFactors:
    """The factors of an adapter by layer, and those of no layer.

    Attributes:
        layers: number of a layer → its factors, merged as far as they fit each other.
        others: factors of no layer: embedding, head, and whatever else.
        layouts: what SGLang's detection sees: is shared-outer → the first tensor that says so.
        unfit: what does not fit together, for which SGLang refuses the adapter; else None.
    """

    layers: dict[int, Layer]
    others: Layer
    layouts: dict[bool, str]
    unfit: UnfitError | None = None


def read_factors(subject: LaunchSubject, adapter: AdapterFacts) -> ReadFactors:
    """Return the factors of an adapter; without the model's sizes as if it had a shared expert."""
    spec = served_spec(subject)
    return _read(adapter, spec.num_shared_experts if spec is not None else 1)


@lru_cache(maxsize=16)
def _read(adapter: AdapterFacts, num_shared: int) -> ReadFactors:
    tensors = {name: info.shape for name, info in stored_tensors(adapter).items()}
    layers, others = split_layers(tensors)
    merged: dict[int, Layer] = {}
    for index, layer in sorted(layers.items()):
        try:
            merged[index] = merge_layer(layer, adapter.config.rank, num_shared)
        except UnfitError as error:
            return ReadFactors({**layers, **merged}, others, _layouts(merged), error)
    return ReadFactors(merged, others, _layouts(merged))


def layouts_of(subject: LaunchSubject, adapter: AdapterFacts) -> dict[bool, str]:
    """Return what SGLang's detection sees: is shared-outer → the first tensor that says so."""
    return read_factors(subject, adapter).layouts


def detected_layouts(adapter: AdapterFacts) -> dict[bool, str]:
    """Return the same of an adapter alone; the number of shared experts does not change it."""
    return _read(adapter, 1).layouts


def _layouts(layers: dict[int, Layer]) -> dict[bool, str]:
    """SGLang looks at the gate and up side of lora_A alone, shared experts included."""
    found: dict[bool, str] = {}
    for layer in layers.values():
        for name, factor in layer.items():
            if "gate_up_proj" not in name or "lora_A" not in name:
                continue
            if len(factor.shape) == 3:
                found.setdefault(factor.shape[0] == 1, factor.tensors[0])
            elif _NUMBERED.search(name):
                found.setdefault(False, factor.tensors[0])
    return found
