"""A quantiser, and checkpoints with their routed experts in NVFP4, in both spellings.

The quantiser is only good enough for tests: it rounds to the nearest number of each block.
"""

import re
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from inkling_runtime.ops.nvfp4 import BLOCK, E2M1, Nvfp4Weight

ROUTED = re.compile(r"mlp\.experts\.(w13_weight|w2_weight|gate_up_proj|down_proj)$")


def quantise(weight: Tensor) -> Nvfp4Weight:
    """Return [E, N, K] in NVFP4; every expert has another second scale."""
    blocks = weight.float().unflatten(-1, (-1, BLOCK))
    spread = torch.linspace(0.8, 1.7, len(weight))
    scales2 = weight.float().abs().amax((1, 2)) / (6 * 448) * spread
    scales = (blocks.abs().amax(-1) / 6 / scales2[:, None, None]).to(torch.float8_e4m3fn)
    steps = scales.float() * scales2[:, None, None]
    values = blocks / steps[..., None].clamp(min=1e-30)
    codes = (values.abs()[..., None] - torch.tensor(E2M1[:8])).abs().argmin(-1)
    codes = (codes + 8 * (values < 0)).to(torch.uint8).flatten(-2)
    return Nvfp4Weight(codes[..., 0::2] | codes[..., 1::2] << 4, scales, scales2)


def modelopt_parts(name: str, weight: Nvfp4Weight) -> dict[str, Tensor]:
    """Return the tensors of a weight in the spelling of ModelOpt."""
    return {
        name: weight.packed,
        f"{name}.scale": weight.scales,
        f"{name}.scale2": weight.scales2,
        f"{name}.input_amax": torch.ones(1),
        f"{name}.original_shape": torch.tensor(weight.shape),
    }


def compressed_tensors_parts(name: str, weight: Nvfp4Weight) -> dict[str, Tensor]:
    """Return the tensors of a weight in the spelling of compressed-tensors."""
    columns = 2 if name.endswith(("w13_weight", "gate_up_proj")) else 1
    return {
        f"{name}.weight_packed": weight.packed,
        f"{name}.weight_scale": weight.scales,
        f"{name}.weight_global_scale": (1 / weight.scales2)[:, None].repeat(1, columns),
        f"{name}.input_global_scale": torch.ones(len(weight.scales2), columns),
    }


SPELLINGS: dict[str, Callable[[str, Nvfp4Weight], dict[str, Tensor]]] = {
    "ModelOpt": modelopt_parts,
    "compressed-tensors": compressed_tensors_parts,
}


def write_nvfp4(folder: Path, spelling: str, packed: Path, plain: Path) -> None:
    """Write a checkpoint twice: routed experts in NVFP4, and the same numbers unpacked."""
    as_packed, as_plain = {}, {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if not ROUTED.search(name):
            as_packed[name] = as_plain[name] = tensor
            continue
        weight = quantise(tensor)
        as_packed |= SPELLINGS[spelling](name, weight)
        as_plain[name] = weight.dequantize(slice(None), torch.float32)
    for target, tensors in ((packed, as_packed), (plain, as_plain)):
        target.mkdir()
        (target / "config.json").write_bytes((folder / "config.json").read_bytes())
        save_file(tensors, target / "model.safetensors")
