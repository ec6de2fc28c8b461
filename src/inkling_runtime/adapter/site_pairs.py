"""From an adapter's modules to one pair of factors per site, whatever the dialect.

Lazy: the result is moves over the file. Questions about contents (are these copies the same
bytes? is this block zero?) go through `Contents`, so that the same code plans from headers alone
or with the numbers at hand.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from inkling_runtime.adapter.adapter import Adapter, sound_part
from inkling_runtime.adapter.adapter_module import AdapterModule, Halves, find_halves
from inkling_runtime.adapter.layouts import Layout, Stored, decode
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.moves import Array, Read, reshape, stack
from inkling_runtime.adapter.pairs import Form, Pair, collapse, untie
from inkling_runtime.adapter.safetensors_file import TensorInfo
from inkling_runtime.adapter.sites import Site, SiteKind
from inkling_runtime.errors import InklingError


@dataclass(frozen=True, slots=True)
class Contents:
    """Answers about the bytes behind lazy arrays."""

    is_same: Callable[[Array, Array], bool]
    is_repeated: Callable[[Array], bool]
    is_zero: Callable[[Array], bool]


HEADERS_ONLY = Contents(
    is_same=lambda first, second: first == second,
    is_repeated=lambda array: array.shape[0] == 1,
    is_zero=lambda array: False,
)
"""Nothing is known but what the moves themselves say; no byte is read."""

SitePairs = dict[Site, Pair]

GATED = (
    (SiteKind.DENSE_GATE, SiteKind.DENSE_UP),
    (SiteKind.ROUTED_GATE, SiteKind.ROUTED_UP),
    (SiteKind.SHARED_GATE, SiteKind.SHARED_UP),
)
"""Kinds whose weights may be fused."""


def gather_pairs(adapter: Adapter, spec: ModelSpec | None, contents: Contents) -> SitePairs:
    """Return the factors of every site of a sound adapter (`require_understood`), in site order.

    Stacks come with their outer factor stored once where all copies are the same bytes, and gate
    and up with an A each where a doubled rank can be undone exactly.

    Raises:
        InklingError: shapes do not fit the layout, experts are missing, or the layout cannot be
            read without the base model's sizes.
    """
    pairs: SitePairs = {}
    numbered: dict[Site, list[AdapterModule]] = {}
    halves = find_halves(adapter.modules)
    for module in adapter.modules:
        if len(module.tensors) == 1 and module.sites[0] in halves:
            continue
        if module.parsed.row.layout is Layout.NUMBERED:
            numbered.setdefault(module.sites[0], []).append(module)
            continue
        pairs.update(_decode_module(adapter, module, spec))
    for site, modules in numbered.items():
        pairs[site] = _stack_experts(adapter, site, modules, spec)
    for site, both in halves.items():
        pairs[site] = _join_halves(adapter, site, both, spec)
    for site, pair in pairs.items():
        pairs[site] = collapse(pair, contents.is_repeated)
    _untie_all(pairs, contents)
    return dict(sorted(pairs.items()))


def gather_sound_pairs(
    adapter: Adapter, spec: ModelSpec | None, contents: Contents = HEADERS_ONLY
) -> tuple[SitePairs, str | None]:
    """Return the factors of what is sound in any adapter, from headers alone by default.

    Where even the sound modules have no meaning together (an expert is missing, a width is told
    by the base model only), there are none, and the second value says why.
    """
    try:
        return gather_pairs(sound_part(adapter), spec, contents), None
    except InklingError as error:
        return {}, error.message


def _decode_module(adapter: Adapter, module: AdapterModule, spec: ModelSpec | None) -> SitePairs:
    try:
        decoded = decode(module.parsed.row.layout, _stored(adapter, module, spec))
    except ValueError as error:
        raise InklingError(f"module `{module.name}` of `{adapter.path}`: {error}") from error
    return {Site(module.parsed.layer, kind): pair for kind, pair in decoded.items()}


def _stored(adapter: Adapter, module: AdapterModule, spec: ModelSpec | None) -> Stored:
    if module.a is None or module.b is None:
        raise InklingError(f"module `{module.name}` of `{adapter.path}` lacks a factor")
    out_features: tuple[int, ...] = ()
    if module.parsed.row.layout is Layout.QKVR:
        out_features = _widths_of(adapter, module, spec)
    return Stored(
        _read(adapter, module.a),
        _read(adapter, module.b),
        module.rank,
        module.scaling,
        module.parsed.row.kinds,
        out_features,
    )


def _read(adapter: Adapter, tensor: TensorInfo) -> Read:
    return Read(adapter.file.path_of(tensor.name), tensor)


def _widths_of(adapter: Adapter, module: AdapterModule, spec: ModelSpec | None) -> tuple[int, ...]:
    if spec is None:
        raise InklingError(
            f"module `{module.name}` of `{adapter.path}` fuses q, k, v and r, "
            "their widths come from the base model",
            "pass the base model's folder or config.json with `--model`",
        )
    shapes = spec.sites()
    missing = [str(site) for site in module.sites if site not in shapes]
    if missing:
        raise InklingError(f"the base model has no `{missing[0]}`, `{module.name}` adapts it")
    return tuple(shapes[site].out_features for site in module.sites)


def _stack_experts(
    adapter: Adapter, site: Site, modules: list[AdapterModule], spec: ModelSpec | None
) -> Pair:
    _require_all_experts(adapter, site, modules, spec)
    pairs = [_decode_module(adapter, module, spec)[site] for module in modules]
    shapes = {(p.a.shape, p.b.shape, p.scaling, p.a.dtype, p.b.dtype) for p in pairs}
    if len(shapes) != 1:
        raise _unlike(adapter, site)
    return Pair(
        stack([pair.a for pair in pairs]),
        stack([pair.b for pair in pairs]),
        pairs[0].scaling,
        Form.STACK,
        site.kind.is_down,
    )


def _join_halves(adapter: Adapter, site: Site, halves: Halves, spec: ModelSpec | None) -> Pair:
    """Return the stack of experts whose one factor is stored once, the other one by one."""
    _require_all_experts(adapter, site, halves.numbered, spec)
    modules = (halves.shared, *halves.numbered)
    once, *each = [_read(adapter, module.tensors[0]) for module in modules]
    if (
        len({module.scaling for module in modules}) != 1
        or len({(e.shape, e.dtype) for e in each}) != 1
    ):
        raise _unlike(adapter, site)
    shared, stacked = reshape(once, 1, *once.shape[-2:]), stack(each)
    a, b = (stacked, shared) if halves.shared.a is None else (shared, stacked)
    return Pair(a, b, halves.shared.scaling, Form.STACK, site.kind.is_down)


def _require_all_experts(
    adapter: Adapter, site: Site, modules: Sequence[AdapterModule], spec: ModelSpec | None
) -> None:
    experts = [module.parsed.expert for module in modules]
    expected = max(experts) + 1
    if spec is not None and site.layer < spec.num_layers:
        expected = spec.num_experts
    if experts != list(range(expected)):
        lacking = sorted(set(range(expected)) - set(experts)) or sorted(
            set(experts) - set(range(expected))
        )
        raise InklingError(
            f"`{adapter.path}` holds {len(experts)} of {expected} experts of `{site}`, "
            f"the first that does not fit is expert {lacking[0]}"
        )


def _unlike(adapter: Adapter, site: Site) -> InklingError:
    return InklingError(
        f"the experts of `{site}` in `{adapter.path}` differ in shape, dtype or scaling"
    )


def _untie_all(pairs: SitePairs, contents: Contents) -> None:
    for layer in _layers(pairs):
        for gate_kind, up_kind in GATED:
            gate, up = pairs.get(Site(layer, gate_kind)), pairs.get(Site(layer, up_kind))
            if gate is not None and up is not None:
                gate, up = untie(gate, up, contents.is_zero)
                pairs[Site(layer, gate_kind)], pairs[Site(layer, up_kind)] = gate, up


def _layers(sites: Iterable[Site]) -> list[int]:
    return sorted({site.layer for site in sites})
