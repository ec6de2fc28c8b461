"""For every rule over an adapter's numbers a released adapter that breaks it: what is changed."""

from typing import Any

import torch

Q1 = "language_model.layers.1.attn.wq_du"
W1_B = "language_model.layers.2.mlp.experts.w1.lora_B.weight"


def no_number(tensors):
    tensors[W1_B].view(-1)[[3, 8]] = torch.tensor([float("nan"), float("inf")]).to(torch.bfloat16)


def zero_b(tensors):
    for name, tensor in tensors.items():
        if name.endswith("lora_B.weight"):
            tensor.zero_()


def zero_one_module(tensors):
    tensors[f"{Q1}.lora_B.weight"].zero_()


def fill_one_factor(tensors):
    tensors[f"{Q1}.lora_B.weight"].fill_(0.5)


def scale_one_layer(tensors):
    tensors[f"{Q1}.lora_B.weight"] *= 1e5


def widen_one_factor(tensors):
    tensors[f"{Q1}.lora_B.weight"] = tensors[f"{Q1}.lora_B.weight"].float() * 1.1


def repeat_one_layer(tensors):
    for name in list(tensors):
        if ".layers.1.mlp.experts.w1." in name:
            for layer in (2, 3):
                tensors[name.replace(".1.", f".{layer}.", 1)] = tensors[name].clone()


VALUE_CASES: dict[str, dict[str, Any]] = {
    "VAL001": {"edit": no_number},
    "VAL002": {"edit": zero_b},
    "VAL003": {"edit": zero_one_module},
    "VAL004": {"edit": fill_one_factor},
    "VAL005": {"edit": scale_one_layer},
    "VAL006": {"edit": widen_one_factor},
    "VAL007": {"dtype": "F32"},
    "VAL008": {"rank": 1025, "groups": ["head"]},
    "VAL009": {"edit": repeat_one_layer},
}
