"""What PEFT on transformers adds to the base weights, by the version that saved the adapter.

A targeted 3-D parameter W[e, d1, d2] is [out, in] per expert. `peft`: from 0.19.1 on, lora_A
[E·R, d2] and lora_B [d1, R·E]. `peft-0.18`: before, lora_A [E·R, d1] and lora_B [d2, R·E], with
delta[e, d1, d2] = s Σ_r A[e, r, d1] B[d2, r, e]. `peft-unsloth`: as `peft`, lora_B [d1, E·R].
"""

import re

import numpy as np
from lora_factors import Array, Config, Factors, RefusedError, Tensors, matrix, modules_of

from factories import Sizes

_W = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
_NAMES = {
    "self_attn.q_proj": "attn.wq_du",
    "self_attn.k_proj": "attn.wk_dv",
    "self_attn.v_proj": "attn.wv_dv",
    "self_attn.r_proj": "attn.wr_du",
    "self_attn.o_proj": "attn.wo_ud",
    "mlp.gate_proj": "mlp.gate",
    "mlp.up_proj": "mlp.up",
    "mlp.down_proj": "mlp.down",
}


def read_peft(
    tensors: Tensors, config: Config, sizes: Sizes, dialect: str = "peft"
) -> dict[str, Factors]:
    """Return what PEFT computes; wrappers nest in the order in which parameters are registered."""
    found = {}
    for module, (a, b) in modules_of(tensors).items():
        path = module.removeprefix("base_model.model.")
        if ".mlp.experts" in path or ".mlp.shared_experts" in path:
            found |= _parameter(path, a, b, config, sizes, dialect)
        elif path == "lm_head":
            if b.shape[0] != sizes.vocab:
                raise RefusedError("lm_head has the padded vocabulary in transformers")
            found["lm_head"] = matrix(a, b, config.scaling(path))
        else:
            match = re.fullmatch(r"model\.(?:language_model\.)?(layers\.\d+)\.(.+)", path)
            assert match is not None
            found[f"{match[1]}.{_NAMES[match[2]]}"] = matrix(a, b, config.scaling(path))
    return found


def _parameter(
    path: str, a: Array, b: Array, config: Config, sizes: Sizes, dialect: str
) -> dict[str, Factors]:
    holder = re.sub(r"(\.base_layer)+$", "", path)
    depth = path.count(".base_layer")
    is_routed = holder.endswith(".experts")
    registered = (
        ("gate_up_proj", "down_proj") if is_routed else ("gate_proj", "up_proj", "down_proj")
    )
    targets = config.values.get("target_parameters") or ()
    targeted = [
        name
        for name in registered
        if any(f"{holder}.{name}" == t or f"{holder}.{name}".endswith(f".{t}") for t in targets)
    ]
    parameter = targeted[len(targeted) - 1 - depth]
    experts = sizes.experts if is_routed else sizes.shared
    full = f"{holder}.{parameter}"
    rank, s = config.rank(full), config.scaling(full)
    if a.shape[0] != experts * rank or b.shape[1] != experts * rank:
        raise RefusedError(f"{full} needs {experts} times rank {rank}, A is {a.shape}")
    stacked_a, stacked_b = _FACTORS[dialect](a, b, experts, rank)
    match = re.search(r"(layers\.\d+\.mlp)\.", path)
    assert match is not None
    root = f"{match[1]}.{'experts' if is_routed else 'shared_experts'}"
    if parameter == "gate_up_proj":
        gate, up = np.split(stacked_b, 2, axis=1)
        return {
            f"{root}.w1": Factors(stacked_a, gate, s),
            f"{root}.w3": Factors(stacked_a, up, s),
        }
    return {f"{root}.{_W[parameter]}": Factors(stacked_a, stacked_b, s)}


def _now(a: Array, b: Array, experts: int, rank: int) -> tuple[Array, Array]:
    expert = [b[:, e::experts] for e in range(experts)]
    return np.stack(np.split(a, experts)), np.stack(expert)


def _before(a: Array, b: Array, experts: int, rank: int) -> tuple[Array, Array]:
    """Return the factors of Wᵀ, which is what was adapted, as those of W."""
    of_transposed_a, of_transposed_b = _now(a, b, experts, rank)
    return of_transposed_b.swapaxes(1, 2), of_transposed_a.swapaxes(1, 2)


def _blocks(a: Array, b: Array, experts: int, rank: int) -> tuple[Array, Array]:
    return np.stack(np.split(a, experts)), np.stack(np.split(b, experts, axis=1))


_FACTORS = {"peft": _now, "peft-0.18": _before, "peft-unsloth": _blocks}
