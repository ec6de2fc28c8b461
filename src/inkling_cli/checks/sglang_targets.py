"""SGLang's names of the modules that it can adapt, and how it reads an adapter's targets.

The trap: an adapter's `target_modules` are normalised by a table of other models' names. The
released names (`wq_du`, `w1`) are not in it and pass through unchanged, to modules that the pool
does not have; only the words `all` and `all-linear`, or runtime names, work on an Inkling.
"""

from collections.abc import Iterable

from inkling_cli.memory.setup import SGLANG_TARGETS
from inkling_runtime.adapter.lora_config import LoraConfig
from inkling_runtime.errors import format_names

POOL_TARGETS = SGLANG_TARGETS
"""Every module of an Inkling that SGLang can adapt, by its runtime name."""

HALVES = ("gate_up_proj", "down_proj")
"""Both halves of an MLP. Experts are adapted only where both are targets."""

ALL_WORDS = ("all", "all-linear")

_NORMALISED = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
    "vocab_emb": "embed_tokens",
    "embeddings": "embed_tokens",
    "word_embeddings": "embed_tokens",
    "output": "lm_head",
    "unembed_tokens": "lm_head",
}


def normalise(names: Iterable[str]) -> list[str]:
    """Return target names as SGLang maps them, each once, in order."""
    last = (name.rpartition(".")[2] for name in names)
    return list(dict.fromkeys(_NORMALISED.get(name, name) for name in last))


def unknown_targets(config: LoraConfig) -> str | None:
    """Return what SGLang does not know in an adapter's `target_modules`, in words, or None."""
    targets = config.target_modules
    if targets is None:
        return "no `target_modules`"
    if isinstance(targets, str):
        return None if targets in ALL_WORDS else f"the `target_modules` pattern `{targets}`"
    names = [name for name in normalise(targets) if name not in POOL_TARGETS]
    return f"{format_names(names)} in its `target_modules`" if names else None
