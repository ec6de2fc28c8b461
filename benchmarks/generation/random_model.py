"""Write a random model and a random adapter of PEFT for it; a script of bench_generate.py.

    python benchmarks/generation/random_model.py '{"config": …, "rank": …, "dtype": …, …}'

The adapter is on q, k, v, r and o and on the routed experts, both factors random, so that its
delta is about as large as what it changes. A folder is complete when it holds a file `done`.
"""

import json
import math
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import InklingForCausalLM, InklingTextConfig
from transformers.utils import logging

logging.disable_progress_bar()

ATTENTION = ["q_proj", "k_proj", "v_proj", "r_proj", "o_proj"]
ROUTED = ["experts.gate_up_proj", "experts.down_proj"]


def main(wanted: dict[str, Any]) -> None:
    """Write what is not there yet."""
    model_folder, adapter_folder = Path(wanted["model"]), Path(wanted["adapter"])
    master = model_folder.with_name("float32")
    if not (master / "done").exists():
        torch.manual_seed(0)
        save(InklingForCausalLM(InklingTextConfig(**wanted["config"])), master)
    if not (model_folder / "done").exists():
        # `.to(bfloat16)` would also round what transformers keeps in fp32: convolutions, biases
        dtype = getattr(torch, wanted["dtype"])
        save(InklingForCausalLM.from_pretrained(master, dtype=dtype), model_folder)
    if not (adapter_folder / "done").exists():
        base = InklingForCausalLM.from_pretrained(master, dtype=torch.float32)
        save(make_adapted(base, wanted), adapter_folder)


def save(model: Any, folder: Path) -> None:
    """Save a model or an adapter, and mark the folder as complete."""
    model.save_pretrained(folder)
    (folder / "done").touch()


def make_adapted(base: InklingForCausalLM, wanted: dict[str, Any]) -> PeftModel:
    """Return the base model with a random adapter."""
    rank = wanted["rank"]
    config = LoraConfig(r=rank, lora_alpha=rank, target_modules=ATTENTION, target_parameters=ROUTED)
    adapted = get_peft_model(base, config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, factor in adapted.named_parameters():
            if ".lora_A." in name:
                noise = torch.randn(factor.shape, generator=generator)
                factor.copy_(noise / math.sqrt(factor.shape[1]))
            elif ".lora_B." in name:
                factor.copy_(0.05 * torch.randn(factor.shape, generator=generator))
        if wanted["is_shared_outer"]:
            share_outer(adapted, wanted["config"]["n_routed_experts"])
    return adapted


def share_outer(adapted: PeftModel, experts: int) -> None:
    """Give all experts the first one's factor on the side of the hidden state.

    PEFT packs A as [E·R, in] with the expert slowest and B as [out, R·E] with the expert fastest.
    """
    for module in adapted.modules():
        parameter = getattr(module, "parameter_name", "")
        if parameter == "gate_up_proj":
            a = module.lora_A["default"].weight
            stack = a.view(experts, -1, a.shape[1])
            stack.copy_(stack[:1].clone().expand_as(stack))
        elif parameter == "down_proj":
            b = module.lora_B["default"].weight
            stack = b.view(b.shape[0], -1, experts)
            stack.copy_(stack[..., :1].clone().expand_as(stack))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(json.loads(sys.argv[1]))
