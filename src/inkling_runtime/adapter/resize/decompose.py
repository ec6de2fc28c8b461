"""The singular value decomposition of a delta through its factors, never forming it.

With the triangles of Aᵀ = Q_A·R_A and B = Q_B·R_B, ΔW = B·A = Q_B·(R_B·R_Aᵀ)·Q_Aᵀ, so the small
core K = R_B·R_Aᵀ = U·S·Vᵀ has the singular values of ΔW, and its best approximation of rank k is

    A' = S_k^½·V_kᵀ·Q_Aᵀ = (S_k^-½·U_kᵀ·R_B)·A      B' = Q_B·U_k·S_k^½ = B·(R_Aᵀ·V_k·S_k^-½)

both as sums of the old components, without any Q and without the inverse of a triangle, which a
factor of deficient rank does not have. Row i of A' and column i of B' have the same norm, √σ_i:
rounding is relative, so any other balance rounds as much, but brings one of the two nearer to
underflow or overflow. Components come in the order of their singular values.

Singular values below the rounding of K itself are noise: they count as zero, and so do their
components; a delta of zero keeps the first components of A, from which training can go on. Where
all experts share a basis their inner factors are one tall matrix, and the
approximation is the best one that has a basis in common.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inkling_runtime.adapter.open_files import OpenFiles
from inkling_runtime.adapter.resize.coefficient_store import CoefficientStore, KeptMatrices
from inkling_runtime.adapter.resize.groups import BasisGroup
from inkling_runtime.adapter.resize.triangles import Wide, find_triangles, reduce
from inkling_runtime.errors import InklingError

_PIECE = 1 << 19
"""Elements of cores that are decomposed at once: 4 MB as float64, of which a few are needed."""

Matrices = Wide | KeptMatrices
"""[n, R] where all experts share the basis, else [E, n, R]."""


@dataclass(frozen=True, slots=True, eq=False)
class Decomposition:
    """A group's deltas as rank components in the order of their weight.

    Attributes:
        group: what was decomposed.
        scaling: of all its pairs when they are made of the components.
        sigma: singular values, scaling included, [1 or E, n].
        of_a: what A is made of: new components as sums of old ones.
        of_b: the same for the B of each pair.
    """

    group: BasisGroup
    scaling: float
    sigma: Wide
    of_a: Matrices
    of_b: tuple[Matrices, ...]


def decompose(group: BasisGroup, store: CoefficientStore, files: OpenFiles) -> Decomposition:
    """Return the singular values and vectors of a group's deltas.

    Raises:
        InklingError: a factor holds NaN or infinity, the delta is beyond float64, or a file
            cannot be read.
    """
    scaling = next((pair.scaling for pair in group.pairs if pair.scaling), 0.0)
    ratios = [pair.scaling / scaling if scaling else 0.0 for pair in group.pairs]
    name, is_common = group.name, group.is_common
    r_a = find_triangles(group.joined_a(), is_a=True, is_common=is_common, files=files, name=name)
    r_b = _triangles_of_b(group, ratios, files)
    if is_common:
        sigma, of_a, of_b = _decompose_cores(r_a, r_b, name)
        parts = tuple(
            of_b[0][:, columns] * ratio
            for columns, ratio in zip(group.columns(), ratios, strict=True)
        )
        return Decomposition(group, scaling, sigma * abs(scaling), of_a[0], parts)
    return _decompose_by_expert(group, (r_a, r_b), (scaling, ratios), store)


def _decompose_by_expert(
    group: BasisGroup,
    triangles: tuple[Wide, Wide],
    scalings: tuple[float, Sequence[float]],
    store: CoefficientStore,
) -> Decomposition:
    r_a, r_b = triangles
    scaling, ratios = scalings
    experts, size, columns = len(r_a), min(r_a.shape[1], r_b.shape[1]), group.columns()
    sigma = np.empty((experts, size))
    kept_a = store.reserve((experts, size, group.rank))
    kept_b = [store.reserve((experts, size, own.stop - own.start)) for own in columns]
    step = max(1, _PIECE // group.rank**2)
    for first in range(0, experts, step):
        chosen = slice(first, first + step)
        found, of_a, of_b = _decompose_cores(r_a[chosen], r_b[chosen], group.name)
        sigma[chosen] = found * abs(scaling)
        kept_a.put(first, of_a)
        for kept, own, ratio in zip(kept_b, columns, ratios, strict=True):
            kept.put(first, of_b[:, :, own] * ratio)
    return Decomposition(group, scaling, sigma, kept_a, tuple(kept_b))


def _triangles_of_b(group: BasisGroup, ratios: Sequence[float], files: OpenFiles) -> Wide:
    """Return the triangles of all B on top of one another, each in the columns of its A."""
    placed = []
    for pair, own, ratio in zip(group.pairs, group.columns(), ratios, strict=True):
        triangles = find_triangles(
            pair.b, is_a=False, is_common=group.is_common, files=files, name=group.name
        )
        wide = np.zeros((*triangles.shape[:2], group.rank))
        wide[:, :, own] = triangles * ratio
        placed.append(wide)
    return placed[0] if len(placed) == 1 else reduce(np.concatenate(placed, axis=1))


def _decompose_cores(r_a: Wide, r_b: Wide, name: str) -> tuple[Wide, Wide, Wide]:
    """Return S [E, n] and what A' and B' are made of, [E, n, R] each (see the module)."""
    with np.errstate(all="ignore"):
        core = r_b @ r_a.swapaxes(1, 2)
        norms = np.linalg.norm(r_a, axis=1) * np.linalg.norm(r_b, axis=1)
    if not (np.isfinite(core).all() and np.isfinite(norms).all()):
        raise InklingError(f"the delta of `{name}` is beyond what float64 holds")
    left, sigma, right = np.linalg.svd(core, full_matrices=False)
    noise = np.finfo(np.float64).eps * norms.shape[1] * norms.sum(axis=1, keepdims=True)
    sigma = np.where(sigma > noise, sigma, 0.0)
    root = np.zeros_like(sigma)
    np.divide(1.0, np.sqrt(sigma), out=root, where=sigma > 0)
    of_a = root[:, :, None] * (left.swapaxes(1, 2) @ r_b)
    of_b = root[:, :, None] * (right @ r_a)
    of_a[~sigma.any(axis=1)] = np.eye(*of_a.shape[1:])
    return sigma, of_a, of_b
