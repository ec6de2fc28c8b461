"""PEFT itself as the judge of an adapter written for it: what lands where, with which bytes.

The base model has no weights here: it is made on the meta device, from its config alone, so that a
model of any size takes no memory. Only the factors are loaded. PEFT moves them to the device of
the base model once they are in place, where they would lose their numbers; so they are looked at
the moment before.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import PeftConfig, PeftModel, get_peft_model_state_dict
from safetensors import safe_open
from transformers import AutoConfig, InklingForCausalLM, InklingForConditionalGeneration

from inkling_runtime.adapter.adapter import Adapter, read_adapter
from inkling_runtime.adapter.model_spec import read_model_spec
from inkling_runtime.errors import InklingError, format_names

_REPORT = "nothing was written; please report it with the versions of peft and transformers"


class _Watched(PeftModel):
    """PEFT's own model that keeps what was in its parameters when they were loaded."""

    landed: dict[str, torch.Tensor]

    def load_state_dict(self, state_dict: Mapping[str, Any], **options: Any) -> Any:
        """Load as PEFT does."""
        result = super().load_state_dict(state_dict, **options)
        self.landed = {
            name: parameter.data for name, parameter in self.named_parameters() if "lora_" in name
        }
        return result


def prove_in_peft(folder: Path, model: Path) -> int:
    """Load an adapter through PEFT and return how many parameters got their numbers.

    Args:
        folder: the adapter, in the dialect `peft`.
        model: the base model's folder or its config.json; no weights are read.

    Raises:
        InklingError: PEFT refuses it, a tensor does not land where its name says with these very
            bytes, a parameter is left without a tensor, or a scaling is another.
    """
    adapter = read_adapter(folder, "peft")
    watched = _load(folder, _base_model(model))
    _require_same_tensors(adapter, watched)
    _require_same_scalings(adapter, watched)
    return len(watched.landed)


def _base_model(model: Path) -> torch.nn.Module:
    """Return transformers' model without weights."""
    spec = read_model_spec(model)
    kind = InklingForConditionalGeneration if spec.is_multimodal else InklingForCausalLM
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        try:
            return kind(AutoConfig.from_pretrained(model))
        except (KeyError, TypeError, ValueError) as error:
            raise InklingError(
                f"transformers makes no model of `{model}`: {_reason(error)}",
                "leave `--verify` out, or pass a base model that transformers loads",
            ) from error


def _reason(error: Exception) -> str:
    """Return the first line of an error, with the next one where it is no more than a heading."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def _load(folder: Path, base: torch.nn.Module) -> _Watched:
    config = PeftConfig.from_pretrained(str(folder))
    config.task_type = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _Watched.from_pretrained(
                base,
                folder,
                config=config,
                torch_device="cpu",
                low_cpu_mem_usage=True,
                autocast_adapter_dtype=False,
            )
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise InklingError(f"PEFT refuses the result: {_reason(error)}", _REPORT) from error


def _require_same_tensors(adapter: Adapter, watched: _Watched) -> None:
    held = get_peft_model_state_dict(
        watched, state_dict=watched.landed, save_embedding_layers=False
    )
    empty = {name for name, tensor in held.items() if tensor.device.type == "meta"}
    stored = adapter.file.tensors.keys()
    for names, what in (
        (stored - (held.keys() - empty), "tensors of the result have no place in PEFT's model"),
        ((held.keys() - stored) | empty, "parameters of PEFT's model get no tensor"),
    ):
        if names:
            raise InklingError(f"{len(names)} {what}: {format_names(sorted(names))}", _REPORT)
    for file in adapter.file.files:
        with safe_open(file.path, "pt") as tensors:
            for name in file.tensors:
                _require_same_bytes(name, tensors.get_tensor(name), held[name])


def _require_same_bytes(name: str, stored: torch.Tensor, held: torch.Tensor) -> None:
    if (stored.dtype, stored.shape) != (held.dtype, held.shape):
        raise InklingError(
            f"PEFT holds `{name}` as {held.dtype} {list(held.shape)}, "
            f"expected {stored.dtype} {list(stored.shape)}",
            _REPORT,
        )
    if not torch.equal(_as_bytes(stored), _as_bytes(held)):
        raise InklingError(f"PEFT holds other numbers in `{name}` than the file", _REPORT)


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _require_same_scalings(adapter: Adapter, watched: _Watched) -> None:
    for module in adapter.modules:
        found = watched.get_submodule(module.name).scaling["default"]
        if found != module.scaling:
            raise InklingError(
                f"PEFT scales `{module.name}` by {found:g}, expected {module.scaling:g}", _REPORT
            )
