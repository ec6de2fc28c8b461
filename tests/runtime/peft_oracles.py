"""Models with an adapter as PEFT makes them, and what it warns about although it works."""

import copy
from typing import Any

import torch
from peft import LoraConfig, get_peft_model

ATTENTION = ["q_proj", "k_proj", "v_proj", "r_proj", "o_proj"]
DENSE = ["gate_proj", "up_proj", "down_proj"]
ROUTED = ["experts.gate_up_proj", "experts.down_proj"]
SHARED = ["shared_experts.gate_proj", "shared_experts.up_proj", "shared_experts.down_proj"]
EVERYTHING = {
    "target_modules": [*ATTENTION, *DENSE, "lm_head"],
    "target_parameters": ROUTED + SHARED,
}
WARNINGS = (
    "ignore:.*_pattern keys did not match:RuntimeWarning",
    "ignore:.*is_gradient_checkpointing:FutureWarning",
)
"""PEFT says that patterns of parameters are ignored (they are not) and asks for a property."""


def with_adapter(model: Any, seed: int = 1, **options: Any) -> Any:
    """Return a PEFT model over a copy of the model; both of its factors are random."""
    config = LoraConfig(**{"r": 4, "lora_alpha": 5.0, **options})
    adapted = get_peft_model(copy.deepcopy(model), config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in adapted.named_parameters():
            if ".lora_A." in name or ".lora_B." in name:
                tensor.copy_(0.3 * torch.randn(tensor.shape, generator=generator))
    return adapted
