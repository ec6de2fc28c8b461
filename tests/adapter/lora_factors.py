"""One site's factors in float64 and adapter_config.json, for the independent calculators."""

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Tensors = dict[str, Array]
"""Tensor name without `.weight` → values."""


class RefusedError(Exception):
    """The consumer does not take the adapter."""


@dataclass(frozen=True)
class Factors:
    """One site: `a` [N, R, in], `b` [N, out, R]; N is 1 without experts."""

    a: Array
    b: Array
    scaling: float

    def delta(self) -> Array:
        return self.scaling * (self.b @ self.a)

    def magnitude(self) -> Array:
        """Return an upper bound of every partial sum, for error bounds."""
        return abs(self.scaling) * (abs(self.b) @ abs(self.a))


@dataclass(frozen=True)
class Config:
    """adapter_config.json as the consumers read it."""

    values: dict[str, Any]

    def scaling(self, module: str) -> float:
        """Return alpha / r, or alpha / √r, for a module by its name in the file."""
        rank = self.rank(module)
        alpha = self._first("alpha_pattern", module, self.values["lora_alpha"])
        return alpha / (math.sqrt(rank) if self.values.get("use_rslora") else rank)

    def rank(self, module: str) -> int:
        """Return the rank of a module."""
        return self._first("rank_pattern", module, self.values["r"])

    def _first(self, key: str, module: str, default: Any) -> Any:
        for pattern, value in (self.values.get(key) or {}).items():
            if re.match(rf"(.*\.)?({pattern})$", module.removeprefix("base_model.model.")):
                return value
        return default


def modules_of(tensors: Tensors) -> dict[str, tuple[Array, Array]]:
    names = {name.rpartition(".")[0] for name in tensors}
    try:
        return {name: (tensors[f"{name}.lora_A"], tensors[f"{name}.lora_B"]) for name in names}
    except KeyError as error:
        raise RefusedError(f"no {error}") from error


def matrix(a: Array, b: Array, scaling: float) -> Factors:
    return Factors(a[None], b[None], scaling)


def stack(a: Array, b: Array, experts: int, scaling: float) -> Factors:
    """Return a stack in which a leading 1 means: shared by all experts."""
    return Factors(
        np.broadcast_to(a, (experts, *a.shape[1:])),
        np.broadcast_to(b, (experts, *b.shape[1:])),
        scaling,
    )


def flat(a: Array, b: Array, down: bool, experts: int, scaling: float) -> Factors:
    """Return a flat pair, whose blocks are contiguous, as a stack."""
    if down:
        blocks = np.stack(np.split(a, experts, axis=1))
        return stack(blocks, b[None], experts, scaling)
    return stack(a[None], np.stack(np.split(b, experts, axis=0)), experts, scaling)
