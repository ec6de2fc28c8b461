"""Models for which the engines' own memory was measured, and the launches of them."""

from copy import deepcopy
from typing import Any

from checks.adapter_folders import MODEL_CONFIG
from memory.released import RELEASED

WIDE_CONFIG: dict[str, Any] = deepcopy(MODEL_CONFIG)
"""Like the other one, but with heads enough for two ranks."""
WIDE_CONFIG["text_config"] |= {
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "swa_num_key_value_heads": 4,
    "hidden_size": 64,
    "intermediate_size": 24,
    "dense_intermediate_size": 40,
    "n_routed_experts": 6,
    "dense_mlp_idx": 2,
    "local_layer_ids": [0, 1, 3],
    "d_rel": 16,
    "vocab_size": 256,
    "unpadded_vocab_size": 250,
}

TINY = {"small": MODEL_CONFIG, "wide": WIDE_CONFIG}
MODELS = {**TINY, **RELEASED}

_SHARED = "--enable-moe-shared-loras"
_TWO = "--tensor-parallel-size 2"
_OUTER = "--experts-shared-outer-loras"
_ALL = "--lora-backend triton --lora-target-modules all"

LAUNCHES: dict[str, tuple[tuple[str, str], ...]] = {
    "vllm": (
        *(
            (model, words)
            for model in TINY
            for words in (
                "--max-lora-rank 1",
                "--max-lora-rank 8 --max-loras 2",
                f"--max-lora-rank 8 --max-loras 2 {_SHARED}",
                f"--max-lora-rank 32 --max-loras 4 {_SHARED}",
            )
        ),
        ("small", f"--max-loras 2 {_SHARED} --fully-sharded-loras"),
        ("small", f"{_SHARED} --lora-target-modules qkvr wo_ud"),
        ("small", f"{_SHARED} --lora-target-modules wq_du experts.w1 w1"),
        (
            "small",
            f"--lora-target-modules lm_head down_proj model.layers.2.attn.wo_ud experts {_SHARED}",
        ),
        ("small", "--lora-target-modules w2"),
        ("small", "--max-model-len 64 --max-num-batched-tokens 32 --max-num-seqs 4"),
        ("small", "--max-model-len 4k --max-num-batched-tokens 1k --no-async-scheduling"),
        ("wide", f"{_TWO} --max-lora-rank 8 --max-loras 2 {_SHARED}"),
        ("wide", f"{_TWO} --max-lora-rank 8 --max-loras 3"),
        ("wide", f"{_TWO} --enable-expert-parallel {_SHARED}"),
        ("wide", f"{_TWO} --enable-expert-parallel"),
        ("wide", f"{_TWO} --max-loras 2 --fully-sharded-loras {_SHARED}"),
        ("wide", f"{_TWO} --kv-cache-dtype fp8"),
        *(
            (model, f"--max-lora-rank 32 {words}".rstrip())
            for model in RELEASED
            for words in (
                "",
                _SHARED,
                f"--tensor-parallel-size 8 {_SHARED}",
                "--tensor-parallel-size 8 --enable-expert-parallel",
            )
        ),
    ),
    "sglang": (
        *(
            (model, words)
            for model in TINY
            for words in (
                f"{_ALL} --max-lora-rank 4 --max-loras-per-batch 3",
                f"{_ALL} --max-lora-rank 4 --max-loras-per-batch 1 {_OUTER}",
                f"{_ALL} --max-lora-rank 32 --max-loras-per-batch 2 {_OUTER}",
            )
        ),
        *(
            (
                "small",
                f"--lora-backend triton --max-lora-rank 8 {_OUTER} --lora-target-modules {targets}",
            )
            for targets in (
                "qkvr wo_ud",
                "qkvr gate_up_proj lm_head",
                "gate_up_proj down_proj embed_tokens",
            )
        ),
        ("wide", f"{_ALL} --tp-size 2 --max-lora-rank 8 --max-loras-per-batch 2 {_OUTER}"),
        ("wide", f"{_ALL} --tp-size 2 --max-lora-rank 8 --max-loras-per-batch 3"),
        ("wide", f"{_ALL} --tp-size 2 --ep-size 2 --max-lora-rank 8 {_OUTER}"),
        ("wide", f"{_ALL} --tp-size 2 --ep-size 2 --max-lora-rank 8"),
        (
            "wide",
            "--lora-backend triton --tp-size 2 --max-lora-rank 8 "
            f"--lora-target-modules qkvr wo_ud gate_up_proj down_proj lm_head {_OUTER}",
        ),
        ("wide", f"{_ALL} --tp-size 2 --max-lora-rank 8 --enable-scattered-sconv {_OUTER}"),
    ),
}
"""Engine → model and the options beside `--enable-lora`."""


def serve_words(engine: str, model: str) -> tuple[str, ...]:
    """Return the command that serves a model, up to the options of a launch."""
    if engine == "vllm":
        return ("vllm", "serve", model, "--enable-lora")
    return ("sglang", "serve", "--model-path", model, "--enable-lora")
