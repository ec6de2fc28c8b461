"""For every rule about PEFT an adapter of PEFT's own that breaks it, on the multimodal model."""

from collections.abc import Callable
from pathlib import Path

import torch

from checks.peft_cases import WRAPPER, Made, source
from factories import TINY
from shards import split_weights

LAYER = f"{WRAPPER}model.language_model.layers.1."


def _misname(made: Made) -> None:
    for letter in "AB":
        tensor = made.tensors.pop(f"{LAYER}self_attn.o_proj.lora_{letter}.weight")
        made.tensors[f"{LAYER}self_attn.out_proj.lora_{letter}.weight"] = tensor


def _raw_prefix(made: Made) -> None:
    made.tensors = {
        name.replace("language_model.", "model.llm."): tensor
        for name, tensor in made.tensors.items()
    }


def _raw_names(made: Made) -> None:
    made.tensors = {
        name.replace("language_model.", "llm.").replace("self_attn.q_proj", "attn.wq_du"): tensor
        for name, tensor in made.tensors.items()
    }
    made.config["alpha_pattern"] = {"wq_du": 3}


def _drop(*endings: str) -> Callable[[Made], None]:
    def edit(made: Made) -> None:
        for ending in endings:
            del made.tensors[LAYER + ending]

    return edit


def _cut(made: Made) -> None:
    name = f"{LAYER}self_attn.o_proj.lora_A.weight"
    made.tensors[name] = made.tensors[name][:, 1:]


def _set(key: str, value: object) -> Callable[[Made], None]:
    return lambda made: made.config.update({key: value})


def _remove_target(made: Made) -> None:
    made.config["target_modules"].remove("o_proj")


def _add_target(made: Made) -> None:
    made.config["target_modules"].append("out_proj")


def _lose_the_saved(made: Made) -> None:
    del made.tensors[f"{WRAPPER}lm_head.weight"]


def _lose_magnitudes(made: Made) -> None:
    for name in [name for name in made.tensors if name.endswith("lora_magnitude_vector")]:
        del made.tensors[name]


def _train_tokens(made: Made) -> None:
    made.config["trainable_token_indices"] = [1, 5]
    name = f"{WRAPPER}model.language_model.embed_tokens.token_adapter.trainable_tokens_delta"
    made.tensors[name] = torch.ones(2, TINY.hidden)


def _double(made: Made) -> None:
    for name in [name for name in made.tensors if "layers.1.self_attn.q_proj" in name]:
        made.tensors[name.removeprefix(WRAPPER)] = made.tensors[name].clone()


def _nothing(made: Made) -> None:
    pass


Q1 = "self_attn.q_proj"

PEFT_CASES: dict[str, tuple[str, str, Callable[[Made], None]]] = {
    "PFA001": ("mm", "attention", _misname),
    "PFA002": ("text", "attention", _nothing),
    "PFA003": ("mm", "tinker", _raw_prefix),
    "PFA004": ("mm", "attention", _remove_target),
    "PFA005": ("mm", "attention", _drop(f"{Q1}.lora_A.weight", f"{Q1}.lora_B.weight")),
    "PFA006": ("mm", "attention", _drop(f"{Q1}.lora_A.weight")),
    "PFA007": ("mm", "attention", _cut),
    "PFA008": ("mm", "experts", _set("use_dora", True)),
    "PFA009": ("mm", "attention", _set("target_modules", ["wq_du", "wk_dv"])),
    "PFA010": ("mm", "embedding", _nothing),
    "PFA011": ("mm", "saved head", _lose_the_saved),
    "PFA012": ("mm", "DoRA", _lose_magnitudes),
    "PFA013": ("mm", "attention", _raw_names),
    "PFA014": ("mm", "attention", _train_tokens),
    "PFA015": ("mm", "attention", _double),
    "PFA016": ("mm", "attention", _add_target),
    "PFA017": ("mm", "attention", _nothing),
}
"""Code → which model it is trained on, what is trained, and what is changed."""


def write_peft_case(code: str, folder: Path) -> Path:
    """Write the adapter that breaks a rule about PEFT on the multimodal model."""
    kind, name, change = PEFT_CASES[code]
    made = source(kind, name)
    change(made)
    made.write(folder)
    return split_weights(folder, 2) if code == "PFA017" else folder
