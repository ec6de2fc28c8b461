"""Which device and which dtype a model runs in."""

from collections.abc import Mapping
from typing import Any

import torch

from inkling_runtime.errors import InklingError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def choose_device(name: str) -> torch.device:
    """Return a device by name; `auto` is the first CUDA device, or else the CPU.

    Raises:
        InklingError: the name is unknown, or there is no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise InklingError(f"device `{name}` is unknown, expected `auto`, `cpu` or `cuda`")
    if kind == "cpu":
        return torch.device("cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(index or 0) >= count:
        raise InklingError(
            f"device `{name}` is not available, torch sees {count} CUDA devices",
            "use `auto` or `cpu`",
        )
    return torch.device(name)


def choose_dtype(name: str, device: torch.device, config: Mapping[str, Any]) -> torch.dtype:
    """Return a dtype by name; `auto` is what config.json says.

    Where it says nothing usable, `auto` is bfloat16 on CUDA and float32 on the CPU.

    Raises:
        InklingError: the name is unknown.
    """
    if name in _DTYPES:
        return _DTYPES[name]
    if name != "auto":
        known = ", ".join(f"`{known}`" for known in ("auto", *_DTYPES))
        raise InklingError(f"dtype `{name}` is unknown, expected one of {known}")
    default = torch.float32 if device.type == "cpu" else torch.bfloat16
    return _DTYPES.get(_configured_dtype(config), default)


def _configured_dtype(config: Mapping[str, Any]) -> str:
    """Return the dtype that a config names, in its text part or at its top; or nothing."""
    text = config.get("text_config")
    for part in (text if isinstance(text, dict) else {}, config):
        for key in ("dtype", "torch_dtype"):
            if isinstance(part.get(key), str):
                return str(part[key]).removeprefix("torch.")
    return ""
