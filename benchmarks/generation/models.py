"""The random models of bench_generate.py: their sizes, their files, the bytes that a step reads.

No torch here: the files are written by `random_model.py` in a process of its own, so that the
benchmark's own memory stays out of everybody's way.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inkling_runtime.adapter.model_spec import ModelSpec, read_model_spec
from inkling_runtime.adapter.sites import SiteKind, SiteShape

ATTENTION = (SiteKind.Q, SiteKind.K, SiteKind.V, SiteKind.R, SiteKind.O)
ROUTED = (SiteKind.ROUTED_GATE, SiteKind.ROUTED_UP, SiteKind.ROUTED_DOWN)
ITEM_SIZES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """A model to be made, and how long it is asked to talk."""

    config: dict[str, Any]
    """Keys of transformers' InklingTextConfig."""
    rank: int = 16
    prompt_tokens: int = 128
    new_tokens: int = 64
    peft_new_tokens: int = 64
    """PEFT's tokens, fewer where each of them takes seconds."""
    batches: tuple[int, ...] = (1, 8)
    adapter_aim: int = 10
    """How many times PEFT's decode speed ours is meant to be at batch 1."""
    read_mb: int = 512
    """Size of the buffer whose reading is the limit; more than any cache holds."""


def _config(hidden: int, layers: int, heads: int, experts: int, dense: int) -> dict[str, Any]:
    return {
        "vocab_size": 32000,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "mlp_layer_types": ["dense"] + ["sparse"] * (layers - 1),
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 4,
        "head_dim": 64,
        "swa_num_attention_heads": heads,
        "swa_num_key_value_heads": heads // 2,
        "swa_head_dim": 64,
        "intermediate_size": dense,
        "moe_intermediate_size": 256,
        "n_routed_experts": experts,
        "num_experts_per_tok": 6,
        "n_shared_experts": 2,
        "max_position_embeddings": 4096,
        "initializer_range": 0.45 * hidden**-0.5,
    }


MODELS = {
    "small": ModelSizes(_config(512, 12, 8, 32, 2048)),
    "large": ModelSizes(_config(1024, 18, 16, 64, 4096), peft_new_tokens=24, adapter_aim=50),
    "tiny": ModelSizes(
        {
            **_config(32, 3, 4, 5, 56),
            "vocab_size": 97,
            "moe_intermediate_size": 24,
            "num_experts_per_tok": 2,
        },
        rank=4,
        prompt_tokens=12,
        new_tokens=5,
        peft_new_tokens=4,
        batches=(1, 3),
        read_mb=64,
    ),
}
"""`small` has 193 million parameters, `large` 1,022 million; `tiny` only shows that all runs."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model of `MODELS` in one dtype, and its adapter, below a folder."""

    workdir: Path
    name: str
    dtype: str
    is_shared_outer: bool

    @property
    def sizes(self) -> ModelSizes:
        """The model's sizes."""
        return MODELS[self.name]

    @property
    def model(self) -> Path:
        """The model's folder."""
        return self.workdir / self.name / self.dtype

    @property
    def adapter(self) -> Path:
        """The adapter's folder, in PEFT's form; the same for both dtypes."""
        form = "shared-outer" if self.is_shared_outer else "per-expert"
        return self.workdir / self.name / f"adapter-{form}"

    def write(self) -> None:
        """Write what is not there; what an earlier run has completed is used again."""
        if all((folder / "done").exists() for folder in (self.model, self.adapter)):
            return
        wanted = {
            "config": self.sizes.config,
            "rank": self.sizes.rank,
            "dtype": self.dtype,
            "model": str(self.model),
            "adapter": str(self.adapter),
            "is_shared_outer": self.is_shared_outer,
        }
        script = str(Path(__file__).with_name("random_model.py"))
        subprocess.run([sys.executable, script, json.dumps(wanted)], check=True)

    def step_bytes(self, batch: int, *, is_adapted: bool) -> int:
        """Return the bytes of weights that a decode step of so many tokens must read at least.

        All but the embedding; of the routed experts as many as a batch hits when each token picks
        its own evenly: E · (1 - (1 - K/E)^B). The cache is not counted.
        """
        spec = read_model_spec(self.model)
        distinct = _distinct_experts(spec, batch)
        elements = 0.0
        for site, shape in spec.sites().items():
            experts = distinct if site.kind in ROUTED else shape.experts or 1
            elements += experts * shape.in_features * shape.out_features
            if is_adapted and site.kind in ATTENTION + ROUTED:
                elements += self._factor_elements(site.kind, shape, experts)
        routers = sum(not layer.is_dense for layer in spec.layers)
        elements += routers * (spec.num_experts + spec.num_shared_experts) * spec.hidden_size
        return round(elements * ITEM_SIZES[self.dtype])

    def _factor_elements(self, kind: SiteKind, shape: SiteShape, experts: float) -> float:
        inner, outer = shape.out_features, shape.in_features
        if kind is SiteKind.ROUTED_DOWN:
            inner, outer = outer, inner
        is_shared = self.is_shared_outer and kind in ROUTED
        return self.sizes.rank * (experts * inner + (1 if is_shared else experts) * outer)


def _distinct_experts(spec: ModelSpec, batch: int) -> float:
    share = spec.num_experts_per_token / spec.num_experts
    return spec.num_experts * (1 - (1 - share) ** batch)
