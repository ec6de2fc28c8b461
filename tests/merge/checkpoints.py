"""Tiny base checkpoints by transformers, adapters for them, and what a merge must give.

The reference is written from the published layouts alone, in float64, and shares no table with
the code under test.
"""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers.utils import logging

from adapter.peft_models import base_model
from factories import TINY, Sizes, write_released_adapter
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.arrays import CONTENTS
from inkling_runtime.merge.merge import Merge
from inkling_runtime.merge.plan import plan_merge
from inkling_runtime.merge.write import write_merge

logging.disable_progress_bar()

FORMS = ("text", "mm", "raw")
"""The text model, the multimodal one in transformers' layout, and the same in the raw layout."""

Deltas = dict[str, np.ndarray]
"""By the released adapter's names, gate and up apart; the experts in front."""


def save_base(folder: Path, form: str, dtype: torch.dtype = torch.float32, **options: Any) -> Path:
    """Save a tiny model in a form and return the folder."""
    model = base_model("text" if form == "text" else "mm").to(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder, save_original_format=form == "raw", **options)
    return folder


def write_normal_adapter(folder: Path, seed: int = 0, **options: Any) -> Path:
    """Write an adapter of the released schema whose deltas are of the size of the base weights."""

    def fill(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> torch.Tensor:
        values = torch.from_numpy(rng.normal(size=shape) * 0.15)
        return values.to({"BF16": torch.bfloat16, "F32": torch.float32}[dtype])

    return write_released_adapter(folder, rng=np.random.default_rng(seed), fill=fill, **options)


def merge(base: Path, out: Path, *adapters: Path, weights: tuple[float, ...] = ()) -> Merge:
    """Merge adapters into a base, write the result, and return the plan."""
    plan = plan_of(base, *adapters, weights=weights)
    write_merge(plan, out)
    return plan


def plan_of(base: Path, *adapters: Path, weights: tuple[float, ...] = ()) -> Merge:
    """Return the plan of a merge."""
    found = [read_adapter(adapter) for adapter in adapters]
    return plan_merge(base, found, weights or [1.0] * len(found), CONTENTS)


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    """Return all tensors of a checkpoint."""
    found: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= load_file(path)
    return found


def headers_of(folder: Path) -> dict[str, bytes]:
    """Return the headers of all shards, byte for byte."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        found[path.name] = data[: 8 + int.from_bytes(data[:8], "little")]
    return found


def files_of(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder but its weights, by their relative names."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".safetensors"
    }


def deltas_of(folder: Path, sizes: Sizes = TINY) -> Deltas:
    """Return what an adapter of the released schema adds, in float64."""
    config = json.loads((folder / "adapter_config.json").read_text())
    scaling = config["lora_alpha"] / config["r"]
    found: Deltas = {}
    with safe_open(folder / "adapter_model.safetensors", "pt") as file:
        tensors = {name: file.get_tensor(name).double().numpy() for name in file.keys()}  # noqa: SIM118
    for name in [name for name in tensors if name.endswith(".lora_A.weight")]:
        module = name.removesuffix(".lora_A.weight")
        a, b = tensors[name], tensors[f"{module}.lora_B.weight"]
        site = module.removeprefix("language_model.")
        if ".shared_experts." in site and site.endswith("w2"):
            a = np.stack(np.split(a, sizes.shared, axis=1))
        elif ".shared_experts." in site:
            b = np.stack(np.split(b, sizes.shared, axis=0))
        delta = scaling * (b @ a)
        if site.endswith("gate_up_proj"):
            root = site.removesuffix("_up_proj")
            found[root], found[root.removesuffix("gate") + "up"] = np.split(delta, 2)
        else:
            found[site] = delta
    return found


def reference(
    base: Mapping[str, torch.Tensor], form: str, deltas: Deltas, sizes: Sizes = TINY
) -> dict[str, np.ndarray]:
    """Return the weights that a merge must give, in float64, for a base that every group is in."""
    weights = {name: tensor.double().numpy().copy() for name, tensor in base.items()}
    layers = "model.layers." if form == "text" else "model.language_model.layers."
    for index in range(sizes.layers):
        own = {
            site.removeprefix(f"layers.{index}."): delta
            for site, delta in deltas.items()
            if site.startswith(f"layers.{index}.")
        }
        if form == "raw":
            _add_raw(weights, f"model.llm.layers.{index}.", own)
        else:
            _add_transformers(weights, f"{layers}{index}.", own)
    if "lm_head" in deltas:
        head = weights["model.llm.unembed.weight" if form == "raw" else "lm_head.weight"]
        head[: len(deltas["lm_head"])] += deltas["lm_head"]
    return weights


_RAW = {
    "attn.wq_du": "attn.wq_du.weight",
    "attn.wk_dv": "attn.wk_dv.weight",
    "attn.wv_dv": "attn.wv_dv.weight",
    "attn.wr_du": "attn.wr_du.weight",
    "attn.wo_ud": "attn.wo_ud.weight",
    "mlp.down_proj": "mlp.w2_md.weight",
    "mlp.experts.w2": "mlp.experts.w2_weight",
    "mlp.shared_experts.w2": "mlp.shared_experts.shared_w2_weight",
}
_RAW_GATED = {
    ("mlp.gate", "mlp.up"): "mlp.w13_dn.weight",
    ("mlp.experts.w1", "mlp.experts.w3"): "mlp.experts.w13_weight",
    (
        "mlp.shared_experts.w1",
        "mlp.shared_experts.w3",
    ): "mlp.shared_experts.shared_w13_weight",
}


def _add_raw(weights: dict[str, np.ndarray], root: str, deltas: Deltas) -> None:
    for site, name in _RAW.items():
        if site in deltas:
            weights[root + name] += deltas[site]
    for sites, name in _RAW_GATED.items():
        for first, site in enumerate(sites):
            if site in deltas:
                weights[root + name][..., first::2, :] += deltas[site]


_TRANSFORMERS = {
    "attn.wq_du": "self_attn.q_proj.weight",
    "attn.wk_dv": "self_attn.k_proj.weight",
    "attn.wv_dv": "self_attn.v_proj.weight",
    "attn.wr_du": "self_attn.r_proj.weight",
    "attn.wo_ud": "self_attn.o_proj.weight",
    "mlp.gate": "mlp.gate_proj.weight",
    "mlp.up": "mlp.up_proj.weight",
    "mlp.down_proj": "mlp.down_proj.weight",
    "mlp.experts.w2": "mlp.experts.down_proj",
    "mlp.shared_experts.w1": "mlp.shared_experts.gate_proj",
    "mlp.shared_experts.w3": "mlp.shared_experts.up_proj",
    "mlp.shared_experts.w2": "mlp.shared_experts.down_proj",
}


def _add_transformers(weights: dict[str, np.ndarray], root: str, deltas: Deltas) -> None:
    for site, name in _TRANSFORMERS.items():
        if site in deltas:
            weights[root + name] += deltas[site]
    fused = weights.get(root + "mlp.experts.gate_up_proj")
    if fused is not None:
        width = fused.shape[1] // 2
        fused[:, :width] += deltas.get("mlp.experts.w1", 0)
        fused[:, width:] += deltas.get("mlp.experts.w3", 0)
