"""The plan of a merged adapter: what goes in, what comes of it, and the conversion to write."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from inkling_runtime.adapter.adapter import Adapter
from inkling_runtime.adapter.arithmetic import Scale
from inkling_runtime.adapter.combine.combine import Part, combine_pairs, common_dtype
from inkling_runtime.adapter.comparison import plan_comparison
from inkling_runtime.adapter.convert.plan import Conversion, lay_out, understood_pairs
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.moves import Array, iter_nodes
from inkling_runtime.adapter.pairs import Form
from inkling_runtime.adapter.resize.coefficient_store import CoefficientStore
from inkling_runtime.adapter.resize.groups import group_sites
from inkling_runtime.adapter.resize.kept import Resize
from inkling_runtime.adapter.resize.plan import Destination, plan_resize
from inkling_runtime.adapter.resize.resize import Progress, untold
from inkling_runtime.adapter.resize.target_rank import TargetRank
from inkling_runtime.adapter.site_pairs import Contents, SitePairs
from inkling_runtime.errors import InklingError, format_count

_NAME_KEY = "base_model_name_or_path"


def gather_parts(
    adapters: Sequence[Adapter],
    weights: Sequence[float],
    spec: ModelSpec | None,
    contents: Contents,
) -> tuple[Part, ...]:
    """Return adapters with their factors and weights, of one base model as far as widths tell.

    Raises:
        InklingError: a weight is missing, zero or no number; an adapter is not plain LoRA or not
            understood; two are made for models of other sizes.
    """
    require_weights(weights, len(adapters))
    parts = tuple(
        Part(adapter, understood_pairs(adapter, spec, contents, "merged"), weight)
        for adapter, weight in zip(adapters, weights, strict=True)
    )
    for first, second in combinations(adapters, 2):
        plan_comparison(first, second, spec)
    return parts


def require_weights(weights: Sequence[float], count: int) -> None:
    """Require a weight for each of `count` adapters, finite and not 0.

    Raises:
        InklingError: with what there is.
    """
    if len(weights) != count:
        raise InklingError(
            f"`--weights` has {format_count(len(weights), 'number')} "
            f"for {format_count(count, 'adapter')}, expected one for each",
            "`--weights 1.0,0.5` for two adapters",
        )
    for weight in weights:
        if not math.isfinite(weight) or weight == 0:
            raise InklingError(
                f"`--weights` has {weight:g}, expected finite numbers other than 0",
                "leave an adapter out that is to have no effect",
            )


def plan_sum(
    parts: Sequence[Part],
    target: TargetRank | None,
    destination: Destination,
    contents: Contents,
    store: CoefficientStore,
    progress: Progress = untold,
) -> tuple[Conversion, Resize | None]:
    """Return the plan that writes a weighted sum of adapters, and what it keeps if it is resized.

    The result continues the first adapter's config and metadata. Nothing is rounded between the
    sum and another rank.

    Args:
        parts: the adapters (see `gather_parts`).
        target: the rank to bring the sum to; None: all ranks beside one another.
        destination: where to.
        contents: answers about the bytes.
        store: where matrices lie; it must be open until the plan is written.
        progress: shows how far the reading for a decomposition is.

    Raises:
        InklingError: the destination needs sizes that only the model tells or cannot hold this,
            or a sum cannot be resized (see `plan_resize`).
    """
    dialect, spec, options = destination.dialect, destination.spec, destination.options
    origin, dtype = parts[0].adapter, options.dtype or common_dtype(parts)
    said = list(_describe_parts(parts, dtype))
    if target is None:
        pairs = combine_pairs(parts, dialect, contents, dtype)
        said += _describe_sum(parts, pairs)
        return lay_out(origin, pairs, dialect, spec, contents, options, said), None
    pairs = combine_pairs(parts, dialect, contents, "F64")
    groups = group_sites(pairs, dialect, contents)
    narrowed = replace(destination, options=replace(options, dtype=dtype))
    resize = plan_resize(
        origin, groups, target, narrowed, contents, store, notes=said, progress=progress
    )
    return resize.conversion, resize


def _describe_parts(parts: Sequence[Part], dtype: str) -> Iterator[str]:
    """Yield what goes in, and what the result cannot keep of it."""
    every = {site for part in parts for site in part.pairs}
    for part in parts:
        lacking = every - set(part.pairs)
        without = f", {len(lacking)} of all are not in it" if lacking else ""
        yield (
            f"`{part.adapter.path}` times {part.weight:g}: "
            f"{format_count(len(part.pairs), 'module')}{without}"
        )
    found = sorted({dtype for part in parts for dtype in part.adapter.dtypes})
    if found != [dtype]:
        yield f"dtype {' and '.join(found)} → {dtype} in all factors"
    first = parts[0].adapter
    named = first.config.values.get(_NAME_KEY)
    for part in parts[1:]:
        other = part.adapter.config.values.get(_NAME_KEY)
        if other != named:
            yield (
                f"{_NAME_KEY} is `{named}` in `{first.path}` and `{other}` in "
                f"`{part.adapter.path}`; the result has the first"
            )


def _is_rounded(factor: Array) -> bool:
    """Return whether elements are multiplied with anything but a power of two."""
    scales = (node.factor for node in iter_nodes(factor) if isinstance(node, Scale))
    return any(abs(math.frexp(one)[0]) not in (0.0, 0.5) for one in scales)


def _describe_sum(parts: Sequence[Part], pairs: SitePairs) -> Iterator[str]:
    """Yield which ranks were added, and which B cannot be scaled exactly."""
    sums = Counter(
        (tuple(part.pairs[site].rank for part in parts if site in part.pairs), pair.rank)
        for site, pair in pairs.items()
    )
    for (ranks, rank), count in sorted(sums.items()):
        if len(ranks) > 1:
            added = " + ".join(map(str, ranks))
            yield f"rank {added} → {rank} in {format_count(count, 'module')}"
    rounded = sum(_is_rounded(pair.b) for pair in pairs.values())
    if rounded:
        yield (
            f"B is rounded in {format_count(rounded, 'module')}, where weights times scalings "
            "differ by more than a power of two"
        )
    expanded = sum(
        pair.form is Form.STACK and not pair.is_shared_outer
        for site, pair in pairs.items()
        if any(site in p.pairs and p.pairs[site].is_shared_outer for p in parts)
    )
    if expanded:
        yield (
            f"the hidden-side factor is stored for each expert in "
            f"{format_count(expanded, 'module')}, as one of the adapters has it"
        )
