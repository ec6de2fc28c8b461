"""What a user may ask of a written adapter beyond its dialect, as rewrites of its pairs.

Each is exact but for the rounding that it says, and comes before the dialect's own demands.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from inkling_runtime.adapter.arithmetic import cast
from inkling_runtime.adapter.pairs import Form, Pair, expand_to_experts, with_scaling
from inkling_runtime.adapter.safetensors_file import DTYPE_BITS
from inkling_runtime.adapter.site_pairs import SitePairs
from inkling_runtime.adapter.sites import Group
from inkling_runtime.errors import InklingError, format_count, format_names


class Outer(StrEnum):
    """How the hidden-side factor of routed experts is to be stored."""

    EXPAND = "expand"
    COLLAPSE = "collapse"


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked for.

    Attributes:
        force: cut rows of the padded vocabulary even if they are not zero.
        dtype: of all factors (a safetensors name); None keeps that of each.
        fold_scaling: give every module the scaling 1, its own multiplied into B.
        outer: of routed experts; None keeps what the source has, copies stored once.
        dropped: groups that are left out.
        shard_size: bytes of a file beyond which there are several; None for one file.
    """

    force: bool = False
    dtype: str | None = None
    fold_scaling: bool = False
    outer: Outer | None = None
    dropped: frozenset[Group] = frozenset()
    shard_size: int | None = None


def apply_options(pairs: SitePairs, options: Options) -> SitePairs:
    """Return the pairs as they are asked for.

    Raises:
        InklingError: nothing is left, or a factor that is to be stored once differs by expert.
    """
    kept = {s: pair for s, pair in pairs.items() if s.kind.group not in options.dropped}
    if not kept:
        raise InklingError(
            "nothing is left of the adapter: it holds "
            + format_names(sorted({site.kind.group.value for site in pairs}))
            + " and all of that is to be dropped"
        )
    if options.outer is Outer.COLLAPSE:
        _require_shared_outer(kept)
    return {site: _rewritten(pair, options) for site, pair in kept.items()}


def _require_shared_outer(pairs: SitePairs) -> None:
    for site, pair in pairs.items():
        if pair.form is Form.STACK and not pair.is_shared_outer:
            raise InklingError(
                f"the hidden-side factors of `{site}` differ between experts, "
                "expected the same bytes in all copies",
                "leave `--collapse` out: copies that are the same are stored once anyway",
            )


def _rewritten(pair: Pair, options: Options) -> Pair:
    if options.dtype is not None:
        pair = replace(pair, a=cast(pair.a, options.dtype), b=cast(pair.b, options.dtype))
    if options.fold_scaling:
        pair = with_scaling(pair, 1.0)
    if options.outer is Outer.EXPAND and pair.form is Form.STACK:
        pair = expand_to_experts(pair)
    return pair


def describe_options(pairs: SitePairs, options: Options) -> Iterator[str]:
    """Yield what the options change, in sentences; `pairs` are those before."""
    for group in sorted(options.dropped):
        count = sum(site.kind.group is group for site in pairs)
        if count:
            modules = format_count(count, f"{group} module")
            yield f"{_LOSS}: {modules}; the result has another effect"
    before = {array.dtype for pair in pairs.values() for array in (pair.a, pair.b)}
    for dtype in sorted(before - {options.dtype} if options.dtype else ()):
        is_exact = (dtype, options.dtype) in _EXACT
        how = "exactly" if is_exact else "each element rounded to nearest even"
        yield f"dtype {dtype} → {options.dtype}, {how}"
    if options.fold_scaling:
        found = sorted({pair.scaling for pair in pairs.values()} - {1.0})
        shown = ", ".join(f"{scaling:g}" for scaling in found[:3])
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        yield f"scaling folded into B: {shown}{more} → 1" if found else "scaling is 1 already"


_LOSS = "DROPPED"


def is_loss(change: str) -> bool:
    """Return whether a sentence of `describe_options` says that a part is left out."""
    return change.startswith(_LOSS)


_EXACT = {
    (narrow, wide)
    for narrow in ("BF16", "F16", "F32")
    for wide in ("F32", "F64")
    if DTYPE_BITS[narrow] < DTYPE_BITS[wide]
}
