"""Norm and effective rank of ΔW = s·B·A from R×R products: ΔW itself is never formed.

With G_A = A·Aᵀ and G_B = Bᵀ·B: ‖B·A‖² = tr(G_B·G_A) = Σ (G_A ∘ G_B), and the squares of the
singular values of B·A are the eigenvalues of Sᵀ·G_B·S for any S with S·Sᵀ = G_A. Sums over rows
are made in float32 by pieces and added in float64, so singular values below `RESOLUTION` of the
largest are noise and count as zero.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from inkling_runtime.adapter.factors import to_float32
from inkling_runtime.adapter.rounding import RawArray, typed
from inkling_runtime.adapter.values.adapter_values import DeltaValues

Gram: TypeAlias = NDArray[np.floating[Any]]
"""[E, R, R]; E is 1 without experts and where a factor is shared by all of them."""

RESOLUTION = 1e-3

_PIECE = 1 << 19
"""Elements that are converted at once: 2 MB as float32."""

_QUIET = 1 << 18
"""Multiplications up to which BLAS starts no threads of its own, beside those that read."""

_FEWEST_COLUMNS = 32
"""With fewer at a time, products are slower than those threads make them."""

_RANKED_EXPERTS = 32
"""Of more experts, so many that are evenly spread are decomposed."""

_SAFE = (2.0**-40, 2.0**40)
"""Magnitudes whose squares neither vanish nor overflow in sums of float32."""


def gram(raw: RawArray, dtype: str, is_a: bool, largest: float) -> Gram:
    """Return A·Aᵀ or Bᵀ·B of each expert.

    Args:
        raw: elements as unsigned integers, A [E, R, in] or B [E, out, R], all finite.
        dtype: of the elements.
        is_a: whether they are of A.
        largest: the largest magnitude among them.
    """
    rank = raw.shape[1] if is_a else raw.shape[2]
    if largest == 0:
        return np.zeros((len(raw), rank, rank))
    is_wide = dtype == "F64" or not _SAFE[0] <= largest <= _SAFE[1]
    result = _gram(raw, dtype, is_a, is_wide)
    if not is_wide and (_diagonals(result) == 0).any():
        return _gram(raw, dtype, is_a, is_wide=True)
    return result


def _gram(raw: RawArray, dtype: str, is_a: bool, is_wide: bool) -> Gram:
    experts, rank = len(raw), raw.shape[1] if is_a else raw.shape[2]
    length = raw.shape[2] if is_a else raw.shape[1]
    result = np.zeros((experts, rank, rank))
    step = max(1, _PIECE // rank)
    stride = max(1, _PIECE // (rank * length))
    for first in range(0, experts, stride):
        for start in range(0, length, step):
            rows = slice(start, start + step)
            chosen = slice(first, first + stride)
            piece = raw[chosen, :, rows] if is_a else raw[chosen, rows]
            wide = _numbers(piece, dtype, is_wide)
            with np.errstate(over="ignore", invalid="ignore"):
                result[chosen] += _product(wide if is_a else wide.transpose(0, 2, 1))
    return result


def _product(wide: NDArray[np.floating]) -> Gram:
    """Return X·Xᵀ of X [E, R, K], a few columns at a time where R is small."""
    experts, rank, length = wide.shape
    columns = _QUIET // rank**2
    if columns < _FEWEST_COLUMNS:
        columns = length
    whole = length // columns * columns
    parts = wide[:, :, :whole].reshape(experts, rank, -1, columns).transpose(0, 2, 1, 3)
    rest = wide[:, :, whole:]
    product: Gram = (parts @ parts.transpose(0, 1, 3, 2)).sum(1, dtype=np.float64)
    product += rest @ rest.transpose(0, 2, 1)
    return product


def _numbers(raw: RawArray, dtype: str, is_wide: bool) -> NDArray[np.floating]:
    raw = np.ascontiguousarray(raw)
    if dtype == "F64":
        return typed(raw, dtype)
    single = to_float32(typed(raw, dtype), dtype)
    return single.astype(np.float64) if is_wide else single


def delta_values(gram_a: Gram, gram_b: Gram, scaling: float, has_experts: bool) -> DeltaValues:
    """Return what a site adds, from the products of its factors.

    Args:
        gram_a: A·Aᵀ, [1 or E, R, R].
        gram_b: Bᵀ·B, [1 or E, R, R].
        scaling: s.
        has_experts: whether the leading size counts experts.
    """
    squares = np.maximum((gram_a * gram_b).sum((1, 2)), 0)
    is_zero = ((_diagonals(gram_a) == 0) | (_diagonals(gram_b) == 0)).all(1)
    norms = np.where(is_zero, 0, abs(scaling) * np.sqrt(squares))
    return DeltaValues(
        float(np.sqrt((norms * norms).sum())),
        _effective_rank(gram_a, gram_b, np.flatnonzero(norms)),
        gram_a.shape[-1],
        scaling,
        tuple(norms.tolist()) if has_experts else (),
        int(is_zero.sum()),
    )


def _diagonals(product: Gram) -> Gram:
    """Return the squared norm of each of the R directions, [E, R]."""
    return np.diagonal(product, axis1=1, axis2=2)


def _effective_rank(gram_a: Gram, gram_b: Gram, experts: NDArray[np.intp]) -> float | None:
    """Return the median effective rank of these experts; None of none."""
    if not experts.size:
        return None
    places = np.linspace(0, experts.size - 1, min(experts.size, _RANKED_EXPERTS))
    chosen = experts[places.astype(np.intp)]
    inner, outer = (gram_a, gram_b) if len(gram_a) == 1 else (gram_b, gram_a)
    root = _root(inner if len(inner) == 1 else inner[chosen])
    part = outer if len(outer) == 1 else outer[chosen]
    squares = np.linalg.eigvalsh(root.transpose(0, 2, 1) @ part @ root)
    sigma = np.sqrt(np.maximum(squares, 0))
    sigma[sigma < RESOLUTION * sigma.max(1, keepdims=True)] = 0
    shares = sigma / sigma.sum(1, keepdims=True)
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return float(np.median(np.exp(-(shares * logs).sum(1))))


def _root(product: Gram) -> Gram:
    """Return S with S·Sᵀ = G, of a G that may be singular."""
    try:
        root: Gram = np.linalg.cholesky(product)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(product)
        root = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
    return root
