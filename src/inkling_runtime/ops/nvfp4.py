"""Expert weights in NVFP4: 4-bit floats with a scale per 16 columns and one per expert.

Not a quantiser, and nothing is multiplied here: weights stay packed in memory, and whoever
multiplies decodes what it needs. What a newcomer gets wrong: the low half of a byte is the first
of its two columns, and the second scale is a factor; the spelling of compressed-tensors stores
its reciprocal, which is undone when a checkpoint is read (`model.nvfp4_names`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

BLOCK = 16
"""Columns that share a scale."""

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
"""The number that each half byte stands for: one bit sign, two exponent, one mantissa."""


@dataclass(frozen=True, slots=True)
class Nvfp4Weight:
    """A stack of matrices [E, N, K], contiguous and all on one device."""

    packed: Tensor
    """uint8 [E, N, K/2]; columns 2j and 2j + 1 are the low and the high half of byte j."""
    scales: Tensor
    """float8_e4m3fn [E, N, K/16]."""
    scales2: Tensor
    """fp32 [E]."""

    @property
    def shape(self) -> torch.Size:
        """The shape (E, N, K) of the weight that it stands for."""
        *outer, half = self.packed.shape
        return torch.Size((*outer, 2 * half))

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.packed.device

    @property
    def nbytes(self) -> int:
        """Bytes as packed."""
        return self.packed.nbytes + self.scales.nbytes + self.scales2.nbytes

    def dequantize(
        self, experts: int | slice | Sequence[int] | Tensor, dtype: torch.dtype
    ) -> Tensor:
        """Return the weights of some experts, rounded to `dtype` once.

        Semantics::

            w[e, n, k] = e2m1(half byte of column k) · scales[e, n, k // 16] · scales2[e]

        Args:
            experts: an index or several of the first dimension.
            dtype: of the result.

        Returns:
            [N, K] of one expert, [n, N, K] of several.
        """
        packed, scales2 = self.packed[experts], self.scales2[experts]
        # The product of a 4-bit float and a scale is exact in fp32: only scales2 rounds.
        scales = self.scales[experts].float()
        pairs = _pairs(packed.device).index_select(0, packed.flatten().int())
        blocks = pairs.view(torch.float32).view(*scales.shape, BLOCK)
        blocks.mul_(scales[..., None]).mul_(scales2[..., None, None, None])
        return blocks.flatten(-2).to(dtype)


@cache
def _pairs(device: torch.device) -> Tensor:
    """Return both numbers of each byte in the order of the columns, as one element of 8 bytes.

    One such element is looked up five times as fast as a row of two numbers.
    """
    pairs = [(E2M1[byte % 16], E2M1[byte // 16]) for byte in range(256)]
    return torch.tensor(pairs, device=device).view(torch.float64).flatten()


ExpertWeights = Tensor | Nvfp4Weight
"""A stack of expert matrices [E, N, K], plain or packed."""


def expert_weight(weights: ExpertWeights, expert: int, dtype: torch.dtype) -> Tensor:
    """Return the matrix of one expert [N, K]; only a packed one is converted to `dtype`."""
    if isinstance(weights, Nvfp4Weight):
        return weights.dequantize(expert, dtype)
    return weights[expert]


def nvfp4_reference(weight: Nvfp4Weight) -> Tensor:
    """Specify the weight fp32 [E, N, K] that packed values stand for, bit by bit."""
    w = torch.empty(weight.shape)
    for expert, scale2 in enumerate(weight.scales2.tolist()):
        for row, byte_row in enumerate(weight.packed[expert].tolist()):
            scales = weight.scales[expert, row].float().tolist()
            for column in range(w.shape[2]):
                bits = byte_row[column // 2] >> (4 * (column % 2)) & 0b1111
                sign, exponent, mantissa = bits >> 3, bits >> 1 & 0b11, bits & 1
                size = (1 + mantissa / 2) * 2.0 ** (exponent - 1) if exponent else mantissa / 2
                w[expert, row, column] = (-1) ** sign * size * scales[column // BLOCK] * scale2
    return w
