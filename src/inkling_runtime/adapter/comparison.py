"""Two adapters side by side: the factors of each site in one form, planned from headers alone.

Not the distances: no number is read here. Whatever the two dialects store, both sides of a site
come out as stacks of one number of experts and of the same widths. A site that only one adapter
has is laid beside a pair without effect, so that a companion whose delta is zero is no difference.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod

from inkling_runtime.adapter.adapter import Adapter, require_plain_lora, require_understood
from inkling_runtime.adapter.coverage import require_fit, size_hint
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.moves import Array, Zeros, pad, reshape
from inkling_runtime.adapter.pairs import Form, Pair, to_stack
from inkling_runtime.adapter.safetensors_file import DTYPE_BITS
from inkling_runtime.adapter.site_pairs import HEADERS_ONLY, SitePairs, gather_pairs
from inkling_runtime.adapter.sites import HEAD_SITE, Site, SiteShape
from inkling_runtime.errors import InklingError


class Presence(StrEnum):
    """Which of the two adapters has a site."""

    BOTH = "both"
    FIRST = "first"
    SECOND = "second"


@dataclass(frozen=True, slots=True)
class Aligned:
    """A site of both adapters: stacks [1 or E, R, in] and [1 or E, out, R] of the same widths.

    `experts` is 0 where the site has none, or where both store them side by side and no model
    tells how many there are; the leading size is 1 then.
    """

    site: Site
    presence: Presence
    first: Pair
    second: Pair
    experts: int

    @property
    def has_same_widths(self) -> bool:
        """Whether both map as many features to as many, for as many experts."""
        one, other = self.first, self.second
        widths = [(pair.a.shape[-1], pair.b.shape[-2], pair.experts) for pair in (one, other)]
        return widths[0] == widths[1]

    @property
    def nbytes(self) -> int:
        """Bytes of all four factors."""
        arrays = (self.first.a, self.first.b, self.second.a, self.second.b)
        return sum(prod(array.shape) * DTYPE_BITS[array.dtype] // 8 for array in arrays)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A planned comparison. Sites are in order."""

    first: Adapter
    second: Adapter
    sites: tuple[Aligned, ...]

    @property
    def nbytes(self) -> int:
        """Bytes that pass through memory."""
        return sum(aligned.nbytes for aligned in self.sites)


def plan_comparison(first: Adapter, second: Adapter, spec: ModelSpec | None) -> Comparison:
    """Return the sites of two adapters of any dialects, side by side.

    Raises:
        InklingError: an adapter is not sound or is more than plain LoRA, one does not fit the
            base model, their widths differ, or a size is needed that only the model tells.
    """
    pairs, others = _gather(first, spec), _gather(second, spec)
    sites = align_pairs(pairs, others, spec)
    for aligned in sites:
        _require_same_widths(aligned, first, second, (pairs, others))
    return Comparison(first, second, sites)


def align_pairs(pairs: SitePairs, others: SitePairs, spec: ModelSpec | None) -> tuple[Aligned, ...]:
    """Return all sites of two adapters, side by side; their widths may still differ."""
    shapes = spec.sites() if spec is not None else {}
    return tuple(
        _align(site, pairs.get(site), others.get(site), shapes.get(site))
        for site in sorted(pairs.keys() | others.keys())
    )


def _gather(adapter: Adapter, spec: ModelSpec | None) -> SitePairs:
    require_understood(adapter)
    require_plain_lora(adapter, "compared")
    pairs = gather_pairs(adapter, spec, HEADERS_ONLY)
    if spec is not None:
        require_fit(adapter.path, pairs, spec)
    return pairs


def _align(site: Site, first: Pair | None, second: Pair | None, shape: SiteShape | None) -> Aligned:
    present = [pair for pair in (first, second) if pair is not None]
    experts = _num_experts(present, shape)
    stacks = [_as_stack(pair, experts) for pair in present]
    if site == HEAD_SITE:
        rows = max(pair.b.shape[1] for pair in stacks)
        stacks = [replace(pair, b=pad(pair.b, 1, rows)) for pair in stacks]
    if len(stacks) == 2:
        return Aligned(site, Presence.BOTH, stacks[0], stacks[1], experts)
    (only,) = stacks
    nothing = replace(only, a=_zeros(only.a), b=_zeros(only.b))
    if second is None:
        return Aligned(site, Presence.FIRST, only, nothing, experts)
    return Aligned(site, Presence.SECOND, nothing, only, experts)


def _num_experts(pairs: list[Pair], shape: SiteShape | None) -> int:
    """Return E from a stack on either side, else from the model, else 0."""
    stacked = max(pair.experts for pair in pairs)
    return stacked or (shape.experts if shape is not None else 0)


def _as_stack(pair: Pair, experts: int) -> Pair:
    """Return a stack; a flat pair whose experts do not divide it stays one matrix."""
    if pair.form is Form.STACK:
        return pair
    if pair.form is Form.FLAT and experts and _flat_width(pair) % experts == 0:
        return to_stack(pair, experts)
    return replace(pair, a=_in_front(pair.a), b=_in_front(pair.b), form=Form.STACK)


def _flat_width(pair: Pair) -> int:
    return pair.a.shape[-1] if pair.is_down else pair.b.shape[-2]


def _in_front(array: Array) -> Array:
    return reshape(array, 1, *array.shape)


def _zeros(array: Array) -> Array:
    return Zeros(array.dtype, array.shape)


def _require_same_widths(
    aligned: Aligned, first: Adapter, second: Adapter, pairs: tuple[SitePairs, SitePairs]
) -> None:
    one, other = aligned.first, aligned.second
    widths = [(pair.a.shape[-1], pair.b.shape[-2]) for pair in (one, other)]
    if widths[0] != widths[1]:
        texts = [f"{width_in} to {width_out} features" for width_in, width_out in widths]
        hints = [
            f"`{adapter.path}`: {hint}"
            for adapter, found in zip((first, second), pairs, strict=True)
            if (hint := size_hint(found))
        ]
        raise InklingError(
            f"`{aligned.site}` maps {texts[0]} in `{first.path}` and {texts[1]} in "
            f"`{second.path}`, expected the same widths",
            "; ".join(hints) or "the two are made for base models of other sizes",
        )
    if one.experts != other.experts:
        raise InklingError(
            f"`{aligned.site}` holds {one.experts} experts in `{first.path}` "
            f"and {other.experts} in `{second.path}`, expected the same number",
            "the two are made for base models of other sizes",
        )
