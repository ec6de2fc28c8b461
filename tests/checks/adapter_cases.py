"""For every rule over adapters an adapter that breaks it, in the released schema or converted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from checks.broken_folders import BROKEN_FOLDERS
from checks.value_cases import VALUE_CASES
from factories import TINY, raw_config, write_released_adapter
from inkling_cli.checks.adapter import Consumer, check_adapter, make_subject
from inkling_cli.checks.adapter.files import FOLDER_RULES
from inkling_cli.checks.adapter.folder import read_folder
from inkling_cli.checks.finding import Finding, sort_findings
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.arrays import CONTENTS
from inkling_runtime.adapter.convert.plan import plan_conversion
from inkling_runtime.adapter.convert.write import write_conversion
from inkling_runtime.adapter.dialects import DIALECTS
from inkling_runtime.adapter.model_spec import parse_model_spec
from inkling_runtime.adapter.values.read import read_values

SPEC = parse_model_spec(raw_config())
W1 = "language_model.layers.2.mlp.experts.w1"


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


def add(name, *shape):
    def edit(tensors):
        tensors[name] = torch.ones(*shape)

    return edit


def repeat_hidden_side(tensors):
    """Store the hidden side of all routed experts for each expert."""
    for name, tensor in tensors.items():
        if tensor.shape[0] == 1:
            tensors[name] = tensor.repeat(TINY.experts, 1, 1)


Q1 = "language_model.layers.1.attn.wq_du"

INJECTED: dict[str, dict[str, Any]] = {
    "ADP001": {"edit": rename("layers.1.attn.wo_ud", "layers.1.attn.wo_du")},
    "ADP002": {"edit": drop(f"{Q1}.lora_B.weight")},
    "ADP003": {"config": {"rank_pattern": {"attn.wo_ud": 3}}},
    "ADP004": {"edit": replace_with(f"{W1}.lora_A.weight", torch.ones(2, TINY.hidden))},
    "ADP005": {"edit": copy_under(Q1, f"base_model.model.{Q1}")},
    "ADP006": {"edit": rename("layers.3.attn.wo_ud", "layers.9.attn.wo_ud")},
    "ADP007": {"edit": replace_with("language_model.lm_head.lora_B.weight", torch.ones(61, 2))},
    "ADP008": {"config": {"use_dora": True}},
    "ADP009": {"edit": add(f"{Q1}.lora_magnitude_vector", TINY.query)},
    "ADP010": {"edit": rename("language_model.layers.", "language_model.model.layers.")},
    "ADP011": {"edit": drop(*(f"{Q1}.lora_{factor}.weight" for factor in "AB"))},
    "ADP012": {"config": {"lora_alpha": 0}},
    "ADP013": {"config": {"rank_pattern": {"attn.wq_dd": 3}}},
    "ADP014": {"config": {"alpha_pattern": {"wq_du": 4, "layers.1.attn.wq_du": 6}}},
    "ADP015": {"config": {"lora_alpha": -8}},
    "ADP016": {"edit": add("language_model.lm_head.base_layer.weight", TINY.vocab, TINY.hidden)},
    "ADP017": {"edit": dict.clear},
    "ADP018": {"edit": replace_with(f"{W1}.lora_A.weight", torch.ones(1, TINY.hidden, 2))},
    "ADP019": {
        "edit": replace_with(f"{W1}.lora_A.weight", torch.ones(TINY.experts, 2, TINY.hidden))
    },
}
"""Unsound adapters: what is changed of a sound one. Every consumer says so."""

COUNTED: dict[str, dict[str, Any]] = {
    "ADP020": {"edit": repeat_hidden_side, "groups": ["routed"]},
    **VALUE_CASES,
}
"""Unsound adapters whose numbers must be read to tell."""


def write_case(code: str, folder: Path) -> tuple[Path, Consumer]:
    """Write the adapter that breaks a rule; return it with the consumer that the rule is about."""
    if code.startswith("PFA"):
        from checks.peft_rule_cases import write_peft_case

        return write_peft_case(code, folder / "adapter"), Consumer.PEFT
    if code in BROKEN_FOLDERS:
        BROKEN_FOLDERS[code](write_released_adapter(folder / "adapter"))
        return folder / "adapter", Consumer.NATIVE
    changes = {**INJECTED, **COUNTED}[code]
    return write_released_adapter(folder / "adapter", **changes), Consumer.NATIVE


def find(
    adapter: Path, *consumers: Consumer, spec=SPEC, values: bool = False
) -> tuple[Finding, ...]:
    """Return what rules over folders and adapters find in a folder."""
    folder = read_folder(adapter)
    found = list(FOLDER_RULES.check(folder))
    if folder.adapter is not None:
        subject = make_subject(folder.adapter, spec)
        if values:
            numbers = read_values(folder.adapter, subject.pairs)
            subject = replace(subject, values=numbers)
        found += check_adapter(subject, list(consumers))
    return sort_findings(found)
