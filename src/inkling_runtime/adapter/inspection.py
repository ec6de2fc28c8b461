"""What an adapter is, as a value: counts, ranks, layouts and coverage, group by group.

Mostly from the header. Whether copies are identical needs numbers; only the first layer of each
group is compared, so that the answer stays instant at any file size.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from inkling_runtime.adapter.adapter import Adapter
from inkling_runtime.adapter.adapter_module import AdapterModule
from inkling_runtime.adapter.coverage import Coverage, compare
from inkling_runtime.adapter.layouts import Layout
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.pairs import Form
from inkling_runtime.adapter.site_pairs import GATED, Contents, SitePairs, gather_sound_pairs
from inkling_runtime.adapter.sites import Group, Site, SiteKind


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One group of modules."""

    group: Group
    num_modules: int
    num_parameters: int
    nbytes: int
    ranks: tuple[int, ...]
    scalings: tuple[float, ...]
    layers: tuple[int, ...]
    experts: str | None
    """For experts: how they are stored, `shared-outer`, `per expert` or `packed` and so on."""
    notes: tuple[str, ...]
    """Tied factors and identical copies."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """The answer of `inkling inspect`."""

    adapter: Adapter
    groups: tuple[GroupSummary, ...]
    sites: tuple[Site, ...]
    """Every site that is adapted."""
    undecodable: str | None
    spec: ModelSpec | None
    coverage: Coverage | None


def inspect_adapter(adapter: Adapter, spec: ModelSpec | None, contents: Contents) -> Inspection:
    """Return what an adapter is, and how it covers the base model if one is given."""
    pairs, undecodable = gather_sound_pairs(adapter, spec)
    groups = tuple(
        _summarise(group, modules, pairs, contents)
        for group in Group
        if (modules := [m for m in adapter.modules if m.sites[0].kind.group is group])
    )
    sites = sorted({site for module in adapter.modules for site in module.sites})
    coverage = compare(pairs, spec) if spec is not None else None
    return Inspection(adapter, groups, tuple(sites), undecodable, spec, coverage)


def _summarise(
    group: Group, modules: list[AdapterModule], pairs: SitePairs, contents: Contents
) -> GroupSummary:
    tensors = [t for m in modules for t in (m.a, m.b) if t is not None]
    return GroupSummary(
        group=group,
        num_modules=len(modules),
        num_parameters=sum(tensor.num_elements for tensor in tensors),
        nbytes=sum(tensor.nbytes for tensor in tensors),
        ranks=tuple(sorted({m.rank for m in modules})),
        scalings=tuple(sorted({m.scaling for m in modules})),
        layers=tuple(sorted({m.parsed.layer for m in modules if m.parsed.layer >= 0})),
        experts=_expert_form(group, modules, pairs),
        notes=tuple(_notes(group, pairs, contents)),
    )


def _expert_form(group: Group, modules: list[AdapterModule], pairs: SitePairs) -> str | None:
    if group not in (Group.ROUTED, Group.SHARED):
        return None
    forms = {_form_of(module, pairs) for module in modules}
    return " and ".join(sorted(forms))


def _form_of(module: AdapterModule, pairs: SitePairs) -> str:
    layout, pair = module.parsed.row.layout, pairs.get(module.sites[0])
    if pair is not None and len(module.tensors) == 1:
        kind = "shared-outer" if pair.is_shared_outer else "shared inner factor"
        return f"{kind}, the other factor per expert"
    if layout is Layout.NUMBERED:
        return "per expert, one 2-D pair each"
    if layout.is_packed:
        return "packed (PEFT)"
    if layout is Layout.FLAT:
        return "shared-outer, flat 2-D"
    if pair is None:
        return "3-D"
    return "shared-outer, 3-D" if pair.is_shared_outer else "per expert, 3-D"


def _notes(group: Group, pairs: SitePairs, contents: Contents) -> Iterable[str]:
    layers = [site.layer for site in pairs if site.kind.group is group]
    if not layers:
        return
    first = min(layers)
    for gate_kind, up_kind in GATED:
        gate, up = pairs.get(Site(first, gate_kind)), pairs.get(Site(first, up_kind))
        if gate_kind.group is group and gate is not None and up is not None:
            tied = contents.is_same(gate.a, up.a)
            yield f"gate and up {'share one A' if tied else 'have an A each'}"
    copies = _identical_copies(group, first, pairs, contents)
    if copies:
        yield f"{', '.join(copies)}: identical copies for every expert (shared-outer, expanded)"


def _identical_copies(group: Group, layer: int, pairs: SitePairs, contents: Contents) -> list[str]:
    """Return the kinds whose outer factor is stored once per expert with the same bytes."""
    found = []
    for kind in SiteKind:
        pair = pairs.get(Site(layer, kind))
        if kind.group is not group or pair is None or pair.form is not Form.STACK:
            continue
        if pair.outer.shape[0] > 1 and contents.is_repeated(pair.outer):
            found.append(f"{'B' if pair.is_down else 'A'} of {kind.value}")
    return found
