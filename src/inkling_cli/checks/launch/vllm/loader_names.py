"""Tensor names as vLLM's adapter loader reads them: which module a tensor is a factor of.

Names only; sizes are `loader.py`'s. The trap: the loader looks at the last part of a path, so a
right ending on a wrong path is accepted and then reaches no module.
"""

from dataclasses import dataclass
from functools import lru_cache

from inkling_cli.checks.launch.vllm.layers import (
    EXPERT_STACKS,
    PROJECTIONS,
    QKVR,
    W13,
    AdaptableModules,
)

_WRAPPER = "base_model.model."
_RENAMED_PARTS = ((".w13_dn", ".gate_up_proj"), (".w2_md", ".down_proj"))
_RENAMED_BEGINNINGS = (
    ("model.llm.layers.", "model.layers."),
    ("model.llm.embed_norm", "model.embed_norm"),
    ("model.llm.embed", "model.embed_tokens"),
    ("model.llm.norm", "model.norm"),
    ("model.llm.unembed", "lm_head"),
    ("language_model.layers.", "model.layers."),
    ("language_model.lm_head.", "lm_head."),
)
_BASE_COPIES = (".embed_tokens.base_layer.weight", ".lm_head.base_layer.weight")


@dataclass(frozen=True, slots=True)
class FactorName:
    """A tensor's module by its path in vLLM, and which of the two factors it is."""

    module: str
    is_a: bool


def is_base_copy(tensor: str) -> bool:
    """Return whether the loader passes over a tensor: a copy of the embedding or the head."""
    return tensor.endswith(_BASE_COPIES)


@lru_cache(maxsize=2**17)
def parse_factor_name(tensor: str) -> FactorName | None:
    """Return what a tensor is to the loader, or None for a name that it refuses."""
    parts = _renamed(tensor).split(".")
    if len(parts) > 1 and parts[-1] == "weight" and parts[-2] in ("lora_A", "lora_B"):
        return FactorName(".".join(parts[:-2]), parts[-2] == "lora_A")
    if len(parts) > 1 and parts[-1] in ("weight", "bias") and parts[-2] in ("score", "classifier"):
        return FactorName(parts[-2], False)
    if parts[-1] in ("lora_embedding_A", "lora_embedding_B"):
        return FactorName(".".join(parts[:-1]), parts[-1].endswith("A"))
    return None


def is_expected(module: str, modules: AdaptableModules, *, shared: bool, experts: int) -> bool:
    """Return whether the loader takes a module, going by the last part of its path.

    `shared` is `--enable-moe-shared-loras`; `experts` the number of routed experts, 0 if unknown.
    """
    _, dot, tail = module.partition(".experts")
    if dot:
        return modules.has_experts and _is_expected_expert("experts" + tail, shared, experts)
    last = module.rpartition(".")[2]
    if last in (*QKVR, "wo_ud", "lm_head"):
        return True
    if last in ("gate_up_proj", "down_proj"):
        return modules.has_dense
    return last in (*W13, "w2", "experts") and modules.has_experts


def _is_expected_expert(tail: str, shared: bool, experts: int) -> bool:
    if tail == "experts":
        return True
    if shared:
        return tail in EXPERT_STACKS
    _, number, projection = (*tail.split("."), "", "")[:3]
    if tail.count(".") != 2 or projection not in PROJECTIONS or not number.isdecimal():
        return False
    return str(int(number)) == number and (not experts or int(number) < experts)


def _renamed(tensor: str) -> str:
    """Return a name as vLLM maps it, without the wrapper of PEFT."""
    name = tensor.replace(_WRAPPER, "") if tensor.startswith(_WRAPPER) else tensor
    for old, new in _RENAMED_PARTS:
        name = name.replace(old, new, 1)
    for old, new in _RENAMED_BEGINNINGS:
        if name.startswith(old):
            name = name.replace(old, new, 1)
    return name
