"""Tiny models and adapters on disk, made from the published schema and never by our own code.

Every width of `TINY` differs from every other, so that no wrong reshape fits. `SQUARE` has
2·I = H as both released models do, so that orientation cannot be told from shapes.
"""

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

GROUPS = ("attention", "dense", "routed", "shared", "head")

TORCH_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model: `local` are its sliding layers, the first `num_dense` are dense."""

    hidden: int = 40
    layers: int = 4
    heads: int = 4
    kv_heads: int = 1
    swa_kv_heads: int = 2
    head_dim: int = 12
    d_rel: int = 7
    local: tuple[int, ...] = (0, 2)
    num_dense: int = 1
    dense: int = 36
    inner: int = 11
    experts: int = 5
    shared: int = 3
    vocab: int = 64
    unpadded: int = 60

    @property
    def query(self) -> int:
        return self.heads * self.head_dim

    def key(self, layer: int) -> int:
        return (self.swa_kv_heads if layer in self.local else self.kv_heads) * self.head_dim

    @property
    def rel(self) -> int:
        return self.heads * self.d_rel


TINY = Sizes()
SQUARE = Sizes(hidden=32, inner=16, head_dim=10)

_LOCAL_42 = tuple(i for i in range(42) if (i + 1) % 6)
_LOCAL_66 = tuple(i for i in range(66) if (i + 1) % 6)
INKLING_SMALL = Sizes(
    4096, 42, 32, 8, 8, 128, 16, _LOCAL_42, 2, 16384, 2048, 256, 2, 201024, 200058
)
INKLING = Sizes(6144, 66, 64, 8, 16, 128, 16, _LOCAL_66, 2, 24576, 3072, 256, 2, 201024, 200058)


def _both_spellings(sizes: Sizes) -> dict[str, Any]:
    """Return the keys that mean the same in both spellings of config.json."""
    return {
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "swa_num_attention_heads": sizes.heads,
        "swa_num_key_value_heads": sizes.swa_kv_heads,
        "swa_head_dim": sizes.head_dim,
        "sliding_window_size": 6,
        "d_rel": sizes.d_rel,
        "rel_extent": 9,
        "n_routed_experts": sizes.experts,
        "n_shared_experts": sizes.shared,
        "num_experts_per_tok": 2,
        "route_scale": 8.0,
        "vocab_size": sizes.vocab,
        "unpadded_vocab_size": sizes.unpadded,
        "logits_mup_width_multiplier": 3.0,
        "rms_norm_eps": 1e-6,
    }


def raw_config(sizes: Sizes = TINY, **changes: Any) -> dict[str, Any]:
    """Return config.json as the released checkpoints spell it; `changes` go into the text part."""
    text = _both_spellings(sizes) | {
        "model_type": "inkling_model",
        "local_layer_ids": list(sizes.local),
        "dense_mlp_idx": sizes.num_dense,
        "dense_intermediate_size": sizes.dense,
        "intermediate_size": sizes.inner,
        "sconv_kernel_size": 4,
        "model_max_length": 128,
    }
    return {
        "model_type": "inkling_mm_model",
        "architectures": ["InklingForConditionalGeneration"],
        "text_config": text | changes,
    }


def transformers_config(sizes: Sizes = TINY, **changes: Any) -> dict[str, Any]:
    """Return config.json of the text model as transformers writes it."""
    layers = range(sizes.layers)
    own = {
        "model_type": "inkling_text",
        "architectures": ["InklingForCausalLM"],
        "layer_types": ["hybrid_sliding" if i in sizes.local else "hybrid" for i in layers],
        "mlp_layer_types": ["dense" if i < sizes.num_dense else "sparse" for i in layers],
        "intermediate_size": sizes.dense,
        "moe_intermediate_size": sizes.inner,
        "conv_kernel_size": 4,
        "max_position_embeddings": 128,
    }
    return _both_spellings(sizes) | own | changes


@dataclass(frozen=True)
class Module:
    """A LoRA module to be written: its name on disk and the shapes of its factors at a rank.

    `experts_a` and `experts_b` are leading sizes of a 3-D stack (0: two dimensions), `packed` is
    E of PEFT's packed form. `config_name` is the name that patterns are matched with.
    """

    name: str
    in_features: int
    out_features: int
    experts_a: int = 0
    experts_b: int = 0
    packed: int = 0
    rank_factor: int = 1
    """A has this many times the rank (SGLang's ready-made qkvr: 4)."""
    table_name: str = ""
    factors: str = "AB"
    """`A` or `B` where the file has only one of them under this name."""

    @property
    def config_name(self) -> str:
        return (self.table_name or self.name).removeprefix("base_model.model.")

    def shapes(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of A and B."""
        rows = rank * (self.packed or self.rank_factor)
        columns = rank * (self.packed or 1)
        a = (rows, self.in_features)
        b = (self.out_features, columns)
        return (
            (self.experts_a, *a) if self.experts_a else a,
            (self.experts_b, *b) if self.experts_b else b,
        )


def released_modules(
    sizes: Sizes = TINY,
    groups: Iterable[str] = GROUPS,
    layers: Iterable[int] | None = None,
    *,
    head_rows: str = "unpadded",
    per_expert: bool = False,
) -> list[Module]:
    """Return the modules of the released schema.

    Args:
        sizes: the model's.
        groups: which parts are adapted, of `GROUPS`.
        layers: which layers are adapted; all by default.
        head_rows: `padded` or `unpadded` vocabulary in lm_head.lora_B.
        per_expert: give every routed expert its own hidden-side factor.
    """
    groups, H = set(groups), sizes.hidden
    modules: list[Module] = []
    for i in range(sizes.layers) if layers is None else layers:
        L = f"language_model.layers.{i}."
        if "attention" in groups:
            modules += [
                Module(f"{L}attn.wq_du", H, sizes.query),
                Module(f"{L}attn.wk_dv", H, sizes.key(i)),
                Module(f"{L}attn.wv_dv", H, sizes.key(i)),
                Module(f"{L}attn.wr_du", H, sizes.rel),
                Module(f"{L}attn.wo_ud", sizes.query, H),
            ]
        if i < sizes.num_dense:
            if "dense" in groups:
                modules += [
                    Module(f"{L}mlp.gate_up_proj", H, 2 * sizes.dense),
                    Module(f"{L}mlp.down_proj", sizes.dense, H),
                ]
            continue
        if "routed" in groups:
            E, outer = sizes.experts, sizes.experts if per_expert else 1
            modules += [
                Module(f"{L}mlp.experts.w1", H, sizes.inner, outer, E),
                Module(f"{L}mlp.experts.w3", H, sizes.inner, outer, E),
                Module(f"{L}mlp.experts.w2", sizes.inner, H, E, outer),
            ]
        if "shared" in groups:
            flat = sizes.shared * sizes.inner
            modules += [
                Module(f"{L}mlp.shared_experts.w1", H, flat),
                Module(f"{L}mlp.shared_experts.w3", H, flat),
                Module(f"{L}mlp.shared_experts.w2", flat, H),
            ]
    if "head" in groups:
        rows = sizes.vocab if head_rows == "padded" else sizes.unpadded
        modules.append(Module("language_model.lm_head", H, rows))
    return modules


Fill = Callable[[tuple[int, ...], str, np.random.Generator], torch.Tensor]


def small_integers(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> torch.Tensor:
    """Return integers from -4 to 4: products of any order are exact in float64."""
    return torch.from_numpy(rng.integers(-4, 5, shape)).to(TORCH_DTYPES[dtype])


def normal(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> torch.Tensor:
    """Return normally distributed numbers: factors of full rank."""
    return torch.from_numpy(rng.standard_normal(shape)).to(TORCH_DTYPES[dtype])


def any_bits(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> torch.Tensor:
    """Return bit patterns of any kind: NaN with payloads, infinities, subnormals, -0."""
    width = TORCH_DTYPES[dtype].itemsize
    data = rng.integers(0, 256, (*shape[:-1], shape[-1] * width), dtype=np.uint8)
    return torch.from_numpy(data).view(TORCH_DTYPES[dtype])


def write_adapter(
    folder: Path,
    modules: Sequence[Module],
    config: Mapping[str, Any],
    *,
    dtype: str = "BF16",
    rng: np.random.Generator | None = None,
    rank_of: Callable[[str], int] | None = None,
    fill: Fill = small_integers,
    edit: Callable[[dict[str, torch.Tensor]], None] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """Write an adapter folder with safetensors' own writer and return it.

    Args:
        folder: where to.
        modules: what is in it.
        config: adapter_config.json.
        dtype: of every tensor.
        rng: source of the numbers.
        rank_of: rank of a module by its config name; the config's `r` by default.
        fill: what the numbers are.
        edit: a last change to the tensors by name.
        metadata: of the safetensors file.
    """
    rng = rng or np.random.default_rng(0)
    tensors: dict[str, torch.Tensor] = {}
    for module in modules:
        rank = rank_of(module.config_name) if rank_of else config["r"]
        for letter, shape in zip("AB", module.shapes(rank), strict=True):
            if letter in module.factors:
                tensors[f"{module.name}.lora_{letter}.weight"] = fill(shape, dtype, rng)
    if edit is not None:
        edit(tensors)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors", metadata=dict(metadata or {}) or None)
    write_json(folder / "adapter_config.json", config)
    return folder


def released_adapter_config(rank: int = 2, alpha: float = 8, **changes: Any) -> dict[str, Any]:
    """Return adapter_config.json as Tinker writes it."""
    return {
        "peft_type": "LORA",
        "base_model_name_or_path": "tiny",
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": "all-linear",
        "bias": "none",
        "lora_dropout": 0.0,
        "inference_mode": True,
    } | changes


def write_released_adapter(
    folder: Path,
    sizes: Sizes = TINY,
    *,
    rank: int = 2,
    alpha: float = 8,
    dtype: str = "BF16",
    rng: np.random.Generator | None = None,
    groups: Iterable[str] = GROUPS,
    layers: Iterable[int] | None = None,
    head_rows: str = "unpadded",
    per_expert: bool = False,
    prefix: str = "",
    fill: Fill = small_integers,
    edit: Callable[[dict[str, torch.Tensor]], None] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Write an adapter of the released schema; `config` holds changes of adapter_config.json."""
    modules = released_modules(sizes, groups, layers, head_rows=head_rows, per_expert=per_expert)
    if prefix:
        modules = [replace(module, name=prefix + module.name) for module in modules]
    values = released_adapter_config(rank, alpha, **(config or {}))
    return write_adapter(folder, modules, values, dtype=dtype, rng=rng, fill=fill, edit=edit)


def write_json(path: Path, value: Any) -> Path:
    """Write JSON, floats as Python writes them (NaN included)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), "utf-8")
    return path


def write_model(folder: Path, config: Mapping[str, Any]) -> Path:
    """Write config.json and return the folder."""
    write_json(folder / "config.json", config)
    return folder


def safetensors_bytes(header: Any, payload: bytes = b"", length: int | None = None) -> bytes:
    """Return a safetensors file with any header (an object, text or bytes), checked by nobody."""
    if not isinstance(header, str | bytes):
        header = json.dumps(header)
    text = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(text) if length is None else length) + text + payload


def write_sparse_adapter(
    folder: Path, modules: Sequence[Module], config: Mapping[str, Any], dtype: str = "BF16"
) -> Path:
    """Write an adapter of any size whose payload is a hole in the file: zeros that use no disk."""
    header: dict[str, Any] = {}
    position, width = 0, TORCH_DTYPES[dtype].itemsize
    for module in modules:
        for letter, shape in zip("AB", module.shapes(config["r"]), strict=True):
            end = position + width * int(np.prod(shape, dtype=np.int64))
            header[f"{module.name}.lora_{letter}.weight"] = {
                "dtype": dtype,
                "shape": list(shape),
                "data_offsets": [position, end],
            }
            position = end
    folder.mkdir(parents=True, exist_ok=True)
    head = safetensors_bytes(header)
    with (folder / "adapter_model.safetensors").open("wb") as file:
        file.write(head)
        file.truncate(len(head) + position)
    write_json(folder / "adapter_config.json", config)
    return folder
