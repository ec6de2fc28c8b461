"""Tiny random transformers models and PEFT around them: the oracle that nobody here wrote.

Models are float64, so that PEFT's own arithmetic can be compared to the last digits.
"""

import copy
import functools
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors import safe_open
from transformers import (
    InklingConfig,
    InklingForCausalLM,
    InklingForConditionalGeneration,
    InklingTextConfig,
)

from factories import TINY, transformers_config

KINDS = ("text", "mm")

_EXPERTS_ONLY = r"\['[^']*experts[^']*'(, '[^']*experts[^']*')*\]\.$"

KNOWN_WARNINGS = (
    r"The following (rank|alpha)_pattern keys did not match any targeted module and were ignored: "
    + _EXPERTS_ONLY,
    "`is_gradient_checkpointing` is deprecated and will be removed in v6",
)
"""False alarms: patterns for expert parameters are said to be ignored, and are applied."""


@contextmanager
def only_known_warnings() -> Iterator[list[str]]:
    """Collect the warnings that are not known to be false."""
    unexpected: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for pattern in KNOWN_WARNINGS:
            warnings.filterwarnings("ignore", message=pattern)
        yield unexpected
        unexpected += [str(warning.message) for warning in caught]


@functools.cache
def _base_model(kind: str) -> torch.nn.Module:
    text = transformers_config(TINY)
    for key in ("model_type", "architectures"):
        text.pop(key)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "text":
            config = InklingTextConfig(**text, experts_implementation="eager")
            model = InklingForCausalLM(config)
        else:
            config = InklingConfig(
                text_config=text,
                vision_config={"hidden_size": 16, "num_hidden_layers": 4, "patch_size": 4},
                audio_config={"n_mel_bins": 4, "mel_vocab_size": 3},
                experts_implementation="eager",
            )
            model = InklingForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.05)
    return model.double().eval()


def base_model(kind: str) -> torch.nn.Module:
    """Return a fresh copy of the tiny model, `text` or `mm` (multimodal)."""
    return copy.deepcopy(_base_model(kind))


def logits_of(model: torch.nn.Module) -> torch.Tensor:
    """Return the logits of a short text."""
    ids = torch.tensor([[3, 11, 7, 59, 21, 3, 40, 1, 17]])
    with torch.no_grad():
        return model(input_ids=ids).logits


def load(kind: str, folder: Path) -> PeftModel:
    """Load an adapter with PEFT and require what PEFT itself does not: both sets are equal.

    Every tensor of the file must be a parameter of the wrapped model with these very numbers, and
    every LoRA parameter of the wrapped model must be in the file.
    """
    with only_known_warnings() as unexpected:
        model = PeftModel.from_pretrained(base_model(kind), folder).eval()
    assert not unexpected
    with safe_open(folder / "adapter_model.safetensors", "pt") as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    wrapped = get_peft_model_state_dict(model, save_embedding_layers=False)
    assert set(wrapped) == set(stored)
    for name, tensor in stored.items():
        assert torch.equal(wrapped[name].double(), tensor.double()), name
    return model


def lora_parameters(model: torch.nn.Module) -> Iterable[torch.nn.Parameter]:
    return [p for name, p in model.named_parameters() if "lora_" in name]


def train_nothing_but_fill(kind: str, folder: Path, seed: int = 0, **config: Any) -> PeftModel:
    """Wrap a model as `config` says, fill every factor with numbers, and let PEFT save it."""
    save = {"save_embedding_layers": config.pop("save_embedding_layers", False)}
    with only_known_warnings():
        model = get_peft_model(base_model(kind), LoraConfig(**config)).eval()
        rng = np.random.default_rng(seed)
        with torch.no_grad():
            for parameter in lora_parameters(model):
                values = torch.from_numpy(rng.integers(-4, 5, tuple(parameter.shape)))
                parameter.copy_(values)
        model.save_pretrained(folder, **save)
    return model


_SITES = {
    "self_attn.q_proj": "attn.wq_du",
    "self_attn.k_proj": "attn.wk_dv",
    "self_attn.v_proj": "attn.wv_dv",
    "self_attn.r_proj": "attn.wr_du",
    "self_attn.o_proj": "attn.wo_ud",
    "mlp.gate_proj": "mlp.gate",
    "mlp.up_proj": "mlp.up",
    "mlp.down_proj": "mlp.down",
    "mlp.experts.down_proj": "mlp.experts.w2",
    "mlp.shared_experts.gate_proj": "mlp.shared_experts.w1",
    "mlp.shared_experts.up_proj": "mlp.shared_experts.w3",
    "mlp.shared_experts.down_proj": "mlp.shared_experts.w2",
}
"""Parameter of a transformers layer, without `.weight` → site."""


def deltas_of(model: PeftModel) -> dict[str, np.ndarray]:
    """Return merged minus unmerged weights where they differ, by site, experts in front."""
    merged = model.merge_and_unload()
    kind = "mm" if hasattr(merged.model, "language_model") else "text"
    base = dict(_base_model(kind).named_parameters())
    found: dict[str, np.ndarray] = {}
    for name, parameter in merged.named_parameters():
        delta = (parameter - base[name]).detach().numpy()
        path = name.removesuffix(".weight").removeprefix("model.").removeprefix("language_model.")
        layer, _, tail = path.partition(".mlp." if ".mlp." in path else ".self_attn.")
        tail = f"{'mlp' if '.mlp.' in path else 'self_attn'}.{tail}"
        if path == "lm_head":
            found["lm_head"] = delta[None]
        elif tail == "mlp.experts.gate_up_proj":
            gate, up = np.split(delta, 2, axis=1)
            found[f"{layer}.mlp.experts.w1"] = gate
            found[f"{layer}.mlp.experts.w3"] = up
        elif tail in _SITES:
            found[f"{layer}.{_SITES[tail]}"] = delta if delta.ndim == 3 else delta[None]
    return {site: delta for site, delta in found.items() if delta.any()}


@dataclass(frozen=True)
class Observed:
    """What PEFT does with an adapter: `error` where it refuses it, else the wrapped model."""

    error: str | None
    model: PeftModel | None = None

    @functools.cached_property
    def state(self) -> dict[str, torch.Tensor]:
        """Every tensor of the wrapped model."""
        return dict(self.model.state_dict()) if self.model is not None else {}

    def places(self, tensor: torch.Tensor) -> list[str]:
        """Return the names in the wrapped model that hold these very numbers."""
        return [
            name
            for name, held in self.state.items()
            if held.shape == tensor.shape and torch.equal(held.double(), tensor.double())
        ]

    @functools.cached_property
    def logits(self) -> torch.Tensor:
        """The logits of a short text."""
        return logits_of(self.model)


def observe(kind: str, folder: Path, seed: int = 0) -> Observed:
    """Return what PEFT does with any adapter, sound or not; what it leaves random is seeded."""
    model = base_model(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        try:
            return Observed(None, PeftModel.from_pretrained(model, folder).eval())
        except Exception as error:
            return Observed(f"{type(error).__name__}: {error}")
