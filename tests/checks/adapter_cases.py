"""For every rule over adapters an adapter that breaks it, in the released schema or converted."""

from pathlib import Path
from typing import Any

import torch

from factories import TINY, raw_config, write_released_adapter
from inkling_cli.checks.adapter import Consumer
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.arrays import CONTENTS
from inkling_runtime.adapter.convert.plan import plan_conversion
from inkling_runtime.adapter.convert.write import write_conversion
from inkling_runtime.adapter.dialects import DIALECTS
from inkling_runtime.adapter.model_spec import parse_model_spec

SPEC = parse_model_spec(raw_config())
W1 = "language_model.layers.2.mlp.experts.w1"
RSLORA = {"use_rslora": True}


def convert(source, to, out):
    plan = plan_conversion(read_adapter(source), DIALECTS[to], SPEC, CONTENTS)
    write_conversion(plan, out)
    return out


def drop(*names):
    def edit(tensors):
        for name in names:
            del tensors[name]

    return edit


def rename(old, new):
    def edit(tensors):
        for name in [name for name in tensors if old in name]:
            tensors[name.replace(old, new, 1)] = tensors.pop(name)

    return edit


def replace_with(name, tensor):
    def edit(tensors):
        tensors[name] = tensor.to(tensors[name].dtype)

    return edit


def copy_under(name, other):
    def edit(tensors):
        for suffix in (".lora_A.weight", ".lora_B.weight"):
            tensors[other + suffix] = tensors[name + suffix].clone()

    return edit


INJECTED: dict[str, dict[str, Any]] = {
    "ADP001": {"edit": rename("layers.1.attn.wo_ud", "layers.1.attn.wo_du")},
    "ADP002": {"edit": drop("language_model.layers.1.attn.wq_du.lora_B.weight")},
    "ADP003": {"config": {"rank_pattern": {"attn.wo_ud": 3}}},
    "ADP004": {"edit": replace_with(f"{W1}.lora_A.weight", torch.ones(2, TINY.hidden))},
    "ADP005": {
        "edit": copy_under(
            "language_model.layers.1.attn.wq_du",
            "base_model.model.language_model.layers.1.attn.wq_du",
        )
    },
    "ADP006": {"edit": rename("layers.3.attn.wo_ud", "layers.9.attn.wo_ud")},
    "ADP007": {"edit": replace_with("language_model.lm_head.lora_B.weight", torch.ones(61, 2))},
    "ADP008": {"config": {"use_dora": True}},
}
"""Unsound adapters: what is changed of a sound one. Every consumer says so."""

CONSUMED: dict[str, tuple[str, Consumer, dict[str, Any]]] = {
    "VLA001": ("tinker", Consumer.VLLM, {}),
    "VLA002": ("tinker", Consumer.VLLM, {}),
    "VLA003": ("peft", Consumer.VLLM, {}),
    "SGA001": ("vllm", Consumer.SGLANG, {}),
    "SGA002": ("vllm", Consumer.SGLANG, {}),
    "SGA003": ("peft", Consumer.SGLANG, {}),
    "SGA004": ("tinker", Consumer.SGLANG, {"config": RSLORA}),
    "SGA005": ("vllm", Consumer.SGLANG, {}),
    "PFA001": ("tinker", Consumer.PEFT, {}),
}
"""Sound adapters that a consumer does not apply whole: their dialect, who it is, changes."""


def write_case(code: str, folder: Path) -> tuple[Path, Consumer]:
    """Write the adapter that breaks a rule; return it with the consumer that the rule is about."""
    if code in INJECTED:
        return write_released_adapter(folder / "adapter", **INJECTED[code]), Consumer.NATIVE
    dialect, consumer, changes = CONSUMED[code]
    if dialect == "tinker":
        return write_released_adapter(folder / "adapter", **changes), consumer
    released = write_released_adapter(folder / "released", **changes)
    return convert(released, dialect, folder / "adapter"), consumer
