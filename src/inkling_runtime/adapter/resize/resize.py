"""Every site's factors at another rank, as lazy arrays over the old ones.

Nothing is written and no delta is formed: factors are read once, a piece at a time, for their
triangles; the new factors are sums of the old rank components by small matrices, and are computed
when they are written, rounded once. What has the rank asked for or less is not computed at all:
its factors stay the bytes they are, padded with zeros.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from inkling_runtime.adapter.arithmetic import Coefficients, Mix, cast
from inkling_runtime.adapter.moves import Array
from inkling_runtime.adapter.open_files import OpenFiles
from inkling_runtime.adapter.pairs import Pair, pad_rank
from inkling_runtime.adapter.resize.coefficient_store import (
    CoefficientStore,
    KeptMatrices,
    first_rows,
)
from inkling_runtime.adapter.resize.decompose import Decomposition, Matrices, decompose
from inkling_runtime.adapter.resize.energy import choose_rank, kept_module, require_energy
from inkling_runtime.adapter.resize.groups import BasisGroup
from inkling_runtime.adapter.resize.kept import KeptModule
from inkling_runtime.adapter.resize.target_rank import TargetRank
from inkling_runtime.adapter.site_pairs import Contents, SitePairs

Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]
"""Given the bytes that will be read, a block in which a function is told those just read."""


@contextmanager
def untold(total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that tells nobody."""
    yield lambda nbytes: None


@dataclass(frozen=True, slots=True)
class Resized:
    """Factors of one rank, and what each module keeps of its energy."""

    pairs: SitePairs
    rank: int
    modules: tuple[KeptModule, ...]


def resize_pairs(
    groups: Sequence[BasisGroup],
    target: TargetRank,
    contents: Contents,
    store: CoefficientStore,
    *,
    dtype: str | None = None,
    progress: Progress = untold,
) -> Resized:
    """Return the factors of all sites at one rank, each delta the best that has it.

    Args:
        groups: all sites (see `group_sites`).
        target: the rank, or what it must keep.
        contents: answers about the bytes.
        store: where matrices lie; it must be open as long as the result is used.
        dtype: of the new factors; by default that of the old.
        progress: shows how far the reading is.

    Raises:
        InklingError: a factor holds NaN or infinity, a delta is too large or too small, no allowed
            rank is large enough, or a file cannot be read.
    """
    decompositions = []
    with OpenFiles() as files, progress(sum(group.nbytes for group in groups)) as advance:
        for group in groups:
            decompositions.append(decompose(group, store, files))
            require_energy(decompositions[-1])
            advance(group.nbytes)
        files.require_unchanged()
    rank = choose_rank(target, decompositions)
    pairs: SitePairs = {}
    for found in decompositions:
        pairs.update(zip(found.group.sites, _at_rank(found, rank, contents, dtype), strict=True))
    modules = tuple(kept_module(found, rank) for found in decompositions)
    return Resized(dict(sorted(pairs.items())), rank, modules)


def _at_rank(
    found: Decomposition, rank: int, contents: Contents, dtype: str | None
) -> Sequence[Pair]:
    group = found.group
    if rank >= group.rank:
        return [_as_dtype(pad_rank(pair, rank), dtype) for pair in group.tied(contents)]
    a = _mixed(group.joined_a(), found.of_a, rank, -2, dtype or group.pairs[0].a.dtype)
    return [
        replace(
            pair,
            a=a,
            b=_mixed(pair.b, own, rank, -1, dtype or pair.b.dtype),
            scaling=found.scaling,
        )
        for pair, own in zip(group.pairs, found.of_b, strict=True)
    ]


def _as_dtype(pair: Pair, dtype: str | None) -> Pair:
    if dtype is None:
        return pair
    return replace(pair, a=cast(pair.a, dtype), b=cast(pair.b, dtype))


def _mixed(factor: Array, matrices: Matrices, rank: int, axis: int, dtype: str) -> Array:
    """Return new components of a factor, computed in float64 and rounded once to a dtype."""
    if isinstance(matrices, KeptMatrices):
        coefficients = Coefficients(matrices.seen(rank))
    else:
        coefficients = Coefficients(first_rows(matrices, rank))
    return Mix(factor, coefficients, axis, dtype)
