"""The plan of a resized adapter: what is asked for, what it keeps, and the conversion to write."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inkling_runtime.adapter.adapter import Adapter
from inkling_runtime.adapter.convert.options import Options, describe_options
from inkling_runtime.adapter.convert.plan import DEFAULT, lay_out, understood_pairs
from inkling_runtime.adapter.dialects.dialect import Dialect
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.resize.coefficient_store import CoefficientStore
from inkling_runtime.adapter.resize.groups import BasisGroup, group_sites
from inkling_runtime.adapter.resize.kept import Resize, format_kept, total_of
from inkling_runtime.adapter.resize.resize import Progress, Resized, resize_pairs, untold
from inkling_runtime.adapter.resize.target_rank import TargetRank
from inkling_runtime.adapter.site_pairs import Contents
from inkling_runtime.errors import format_count


@dataclass(frozen=True, slots=True)
class Destination:
    """Where resized factors go: a dialect, the base model if it is known, further wishes."""

    dialect: Dialect
    spec: ModelSpec | None = None
    options: Options = DEFAULT


def plan_adapter_resize(
    adapter: Adapter,
    target: TargetRank,
    destination: Destination,
    contents: Contents,
    store: CoefficientStore,
    progress: Progress = untold,
) -> Resize:
    """Return the plan that writes an adapter at one rank (see `plan_resize`).

    Raises:
        InklingError: as `plan_resize`, or the adapter is not plain LoRA or not understood.
    """
    pairs = understood_pairs(adapter, destination.spec, contents, "resized")
    return plan_resize(
        adapter,
        group_sites(pairs, destination.dialect, contents),
        target,
        destination,
        contents,
        store,
        notes=list(describe_options(pairs, Options(dtype=destination.options.dtype))),
        progress=progress,
    )


def plan_resize(
    origin: Adapter,
    groups: Sequence[BasisGroup],
    target: TargetRank,
    destination: Destination,
    contents: Contents,
    store: CoefficientStore,
    *,
    notes: Sequence[str] = (),
    progress: Progress = untold,
) -> Resize:
    """Return the plan that writes deltas at one rank, each the best approximation that has it.

    Args:
        origin: whose config and metadata the result continues.
        groups: all sites, grouped for the destination's dialect.
        target: the rank, or what it must keep.
        destination: where to.
        contents: answers about the bytes.
        store: where matrices lie; it must be open until the plan is written.
        notes: what a user should know of what was done to the factors before.
        progress: shows how far the reading for the decomposition is.

    Raises:
        InklingError: a factor holds NaN or infinity, no allowed rank is large enough, or the
            destination needs sizes that only the model tells.
    """
    options = destination.options
    resized = resize_pairs(groups, target, contents, store, dtype=options.dtype, progress=progress)
    conversion = lay_out(
        origin,
        resized.pairs,
        destination.dialect,
        destination.spec,
        contents,
        replace(options, dtype=None),
        [*notes, *_describe(resized)],
    )
    return Resize(conversion, resized.rank, resized.modules)


def _describe(resized: Resized) -> list[str]:
    """Return what becomes of the ranks and of the energy, in sentences."""
    counts: dict[int, int] = {}
    for module in resized.modules:
        counts[module.rank_before] = counts.get(module.rank_before, 0) + 1
    said = [
        f"rank {before} → {resized.rank} in {format_count(count, 'module')}"
        + (", padded with zeros" if before < resized.rank else "")
        for before, count in sorted(counts.items())
        if before != resized.rank
    ]
    total = total_of(resized.modules)
    if total.lost == 0:
        return [*said, "every delta stays what it is"]
    return [*said, f"energy kept: {format_kept(total)} of all modules together"]
