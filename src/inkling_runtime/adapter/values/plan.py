"""What one pass over an adapter reads, in which order, and which sums each run of rows feeds.

From headers alone. Every tensor is read once and in windows of its rows; a window feeds the
products (`delta_values.gram`) of all factors that its rows are part of. A window is as small as
the arrangement on disk allows: a few MB, but one whole A without experts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import lcm, prod
from pathlib import Path

from inkling_runtime.adapter.adapter import Adapter
from inkling_runtime.adapter.module_problems import FACTOR_DTYPES
from inkling_runtime.adapter.moves import Array, Join, iter_reads
from inkling_runtime.adapter.pairs import Form
from inkling_runtime.adapter.safetensors_file import DTYPE_BITS, TensorInfo
from inkling_runtime.adapter.site_pairs import SitePairs
from inkling_runtime.adapter.sites import Site
from inkling_runtime.adapter.values.row_views import RowView, row_view

WINDOW_BYTES = 4 << 20
"""The size of a window, where the arrangement on disk allows it."""

_LARGEST_UNIT = 128 << 20
_LARGEST_RANK = 1024
_LARGEST_PRODUCTS = 1 << 26
"""Elements of a site's products: 256 experts of rank 512."""


@dataclass(frozen=True, slots=True)
class Use:
    """A factor that a tensor is part of.

    Attributes:
        factor: its number in the plan.
        view: how the tensor's rows lie in the part.
        unit: rows that must be read together.
        first_expert: the expert with which the part begins.
    """

    factor: int
    view: RowView
    unit: int
    first_expert: int


@dataclass(frozen=True, slots=True)
class FactorPlan:
    """A or B of one or more sites: its experts (1 without), its rank, and what it is made of."""

    is_a: bool
    is_stack: bool
    experts: int
    rank: int
    uses: tuple[Use, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """Some rows of a tensor: their file, shape, the number of the first, bytes and uses."""

    path: Path
    tensor: TensorInfo
    shape: tuple[int, ...]
    first: int
    start: int
    end: int
    uses: tuple[Use, ...]


@dataclass(frozen=True, slots=True)
class PassPlan:
    """One pass over an adapter; `sites` holds the numbers of each site's A and B."""

    windows: tuple[Window, ...]
    factors: tuple[FactorPlan, ...]
    sites: Mapping[Site, tuple[int, int]]
    not_read: Mapping[str, str]
    not_computed: Mapping[Site, str]


def plan_pass(adapter: Adapter, pairs: SitePairs, window_bytes: int) -> PassPlan:
    """Return the pass that reads all tensors of an adapter and the deltas of these sites."""
    factors, sites, not_computed = _plan_sites(pairs)
    for site in (site for module in adapter.modules for site in module.sites):
        if site not in pairs:
            not_computed[site] = "its module is not sound"
    uses: dict[str, list[Use]] = {}
    for number in sorted({number for both in sites.values() for number in both}):
        for use in factors[number].uses:
            uses.setdefault(use.view.tensor.name, []).append(use)
    tensors = _ordered(adapter, pairs)
    return PassPlan(
        tuple(
            window
            for tensor in tensors
            if tensor.dtype in FACTOR_DTYPES
            for window in _windows(
                adapter.file.path_of(tensor.name),
                tensor,
                tuple(uses.get(tensor.name, ())),
                window_bytes,
            )
        ),
        tuple(factors),
        sites,
        {
            tensor.name: f"elements of dtype {tensor.dtype} are not judged"
            for tensor in tensors
            if tensor.dtype not in FACTOR_DTYPES
        },
        dict(sorted(not_computed.items())),
    )


def _plan_sites(
    pairs: SitePairs,
) -> tuple[list[FactorPlan], dict[Site, tuple[int, int]], dict[Site, str]]:
    """Return the factors, the numbers of each site's A and B, and why a site has no norm."""
    factors: list[FactorPlan] = []
    known: dict[int, int | str] = {}
    sites: dict[Site, tuple[int, int]] = {}
    not_computed: dict[Site, str] = {}
    for site, pair in pairs.items():
        numbers: list[int] = []
        for array, is_a in ((pair.a, True), (pair.b, False)):
            if id(array) not in known:
                known[id(array)] = _plan_factor(array, is_a, pair.form is Form.STACK, factors)
            found = known[id(array)]
            if isinstance(found, str):
                not_computed[site] = found
            else:
                numbers.append(found)
        if len(numbers) == 2:
            sites[site] = (numbers[0], numbers[1])
    return factors, sites, not_computed


def _plan_factor(array: Array, is_a: bool, is_stack: bool, factors: list[FactorPlan]) -> int | str:
    """Return the number under which a factor was added, or why it has no norm."""
    rank = array.shape[-2] if is_a else array.shape[-1]
    experts = array.shape[0] if is_stack else 1
    if rank > _LARGEST_RANK:
        return f"its rank is {rank}, norms are computed up to {_LARGEST_RANK}"
    if experts * rank * rank > _LARGEST_PRODUCTS:
        return f"it has {experts} experts of rank {rank}, too many for norms"
    uses = []
    for part, expert in _parts(array, is_stack):
        view = row_view(part)
        if view is None:
            return "its factors are put together from several tensors"
        tensor = view.tensor
        unit = tensor.shape[0] if _runs_along_rank(view, is_a, is_stack) else view.unit
        if unit * (tensor.nbytes // tensor.shape[0]) > _LARGEST_UNIT:
            return f"`{tensor.name}` has rows of more than {_LARGEST_UNIT >> 20} MB"
        uses.append(Use(len(factors), view, unit, expert))
    factors.append(FactorPlan(is_a, is_stack, experts, rank, tuple(uses)))
    return len(factors) - 1


def _parts(array: Array, is_stack: bool) -> Iterator[tuple[Array, int]]:
    """Yield the parts of a factor along its experts, each with its first expert."""
    if not (is_stack and isinstance(array, Join) and array.axis == 0):
        yield array, 0
        return
    expert = 0
    for source in array.sources:
        yield source, expert
        expert += source.shape[0]


def _runs_along_rank(view: RowView, is_a: bool, is_stack: bool) -> bool:
    """Return whether the rows run along the rank, so that all of them are needed at once."""
    return view.axis == is_stack + (0 if is_a else 1)


def _ordered(adapter: Adapter, pairs: SitePairs) -> list[TensorInfo]:
    """Return all tensors in the order of the files, but the tensors of a layer together.

    A file with all A before all B would otherwise keep the products of all layers waiting.
    """
    tensors = adapter.file.tensors
    places = {name: (adapter.file.file_numbers[name], t.start) for name, t in tensors.items()}
    first: dict[int, tuple[int, int]] = {}
    layer_of: dict[str, int] = {}
    for site, pair in pairs.items():
        for array in (pair.a, pair.b):
            for read in iter_reads(array):
                layer_of[read.tensor.name] = site.layer
                place = places[read.tensor.name]
                first[site.layer] = min(first.get(site.layer, place), place)
    keys = {
        name: (first[layer_of[name]] if name in layer_of else place, place)
        for name, place in places.items()
    }
    return sorted(tensors.values(), key=lambda tensor: keys[tensor.name])


def _windows(
    path: Path, tensor: TensorInfo, uses: tuple[Use, ...], window_bytes: int
) -> Iterator[Window]:
    shape = tensor.shape if uses else (tensor.num_elements,)
    unit = lcm(*(use.unit for use in uses))
    row_bytes = prod(shape[1:]) * DTYPE_BITS[tensor.dtype] // 8
    if not tensor.nbytes:
        return
    rows = max(unit, window_bytes // row_bytes // unit * unit)
    for first in range(0, shape[0], rows):
        last = min(first + rows, shape[0])
        start = tensor.start + first * row_bytes
        end = tensor.start + last * row_bytes
        yield Window(path, tensor, (last - first, *shape[1:]), first, start, end, uses)
