"""What an adapter under the raw checkpoint's names adds, and one whose experts lie in halves.

Rows of a fused gate and up alternate as those of the base weights do: row 2j is gate j, row 2j+1
is up j, within each expert.
"""

import re

import numpy as np
from lora_factors import Array, Config, Factors, RefusedError, Tensors, matrix, stack

from factories import Sizes


def plain_name(module: str) -> str:
    """Return a module's name without what any producer puts in front of `layers.` or the head."""
    return re.sub(r"^(base_model\.model\.)?((language_model|model(\.llm)?)\.)?", "", module)


def split_raw(tensors: Tensors, config: Config, sizes: Sizes) -> tuple[dict[str, Factors], Tensors]:
    """Return the sites under raw names, and all other tensors."""
    found: dict[str, Factors] = {}
    rest: Tensors = {}
    for name, tensor in tensors.items():
        module, _, letter = name.rpartition(".lora_")
        layer, _, tail = plain_name(module).partition(".mlp.")
        b = tensors.get(f"{module}.lora_B")
        if tail not in _RAW:
            rest[name] = tensor
        elif letter == "A":
            if b is None:
                raise RefusedError(f"no lora_B of {module}")
            found |= _raw(layer, tail, tensor, b, config.scaling(module), sizes)
    return found, rest


_RAW = {
    "w13_dn": ("gate", "up"),
    "w2_md": ("down",),
    **{f"experts.w13{end}": ("experts.w1", "experts.w3") for end in ("", "_weight")},
    "experts.w2_weight": ("experts.w2",),
    **{
        f"shared_experts.shared_w13{end}": ("shared_experts.w1", "shared_experts.w3")
        for end in ("", "_weight")
    },
    **{f"shared_experts.shared_w2{end}": ("shared_experts.w2",) for end in ("", "_weight")},
}
"""Raw name → the parts that its rows hold in turn."""


def _raw(layer: str, tail: str, a: Array, b: Array, s: float, sizes: Sizes) -> dict[str, Factors]:
    parts = _RAW[tail]
    experts = sizes.shared if tail.startswith("shared") else sizes.experts
    found = {}
    for i, part in enumerate(parts):
        rows = np.take(b, range(i, b.shape[-2], len(parts)), axis=-2)
        factors = matrix(a, rows, s) if a.ndim == 2 else stack(a, rows, experts, s)
        found[f"{layer}.mlp.{part}"] = factors
    return found


_HALF = re.compile(r"(.*\.experts)(?:\.(\d+))?\.(\w+)\.lora_([AB])")


def expand_halves(tensors: Tensors) -> Tensors:
    """Return the tensors with a factor that stands once for all experts copied to each of them."""
    names = {match.groups(): name for name in tensors if (match := _HALF.fullmatch(name))}
    result = dict(tensors)
    for (holder, number, projection, letter), name in names.items():
        other = "B" if letter == "A" else "A"
        if number is not None or (holder, None, projection, other) in names:
            continue
        shared = result.pop(name)
        copy = shared[0] if shared.ndim == 3 else shared
        for place, expert, name_of_expert, _ in names:
            if expert is not None and (place, name_of_expert) == (holder, projection):
                result[f"{holder}.{expert}.{projection}.lora_{letter}"] = copy
    return result
