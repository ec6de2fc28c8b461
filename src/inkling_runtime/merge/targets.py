"""Which sites of an adapter a tensor of a base checkpoint holds, in the order of its rows.

Derived from the one table of tensor names (`model.checkpoint_names`): it says which parameter a
tensor is a part of; here stands which sites a parameter holds, row after row.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.sites import Site, SiteKind, SiteShape
from inkling_runtime.model.checkpoint_names import Layout, Move, Source
from inkling_runtime.model.parameters import dimensions, parse_size

_SITES_OF_PARAMETER: Mapping[str, tuple[SiteKind, ...]] = {
    "attn.wqkvr": (SiteKind.Q, SiteKind.K, SiteKind.V, SiteKind.R),
    "attn.wo": (SiteKind.O,),
    "mlp.w13": (SiteKind.DENSE_GATE, SiteKind.DENSE_UP),
    "mlp.w2": (SiteKind.DENSE_DOWN,),
    "mlp.experts.w13": (SiteKind.ROUTED_GATE, SiteKind.ROUTED_UP),
    "mlp.experts.w2": (SiteKind.ROUTED_DOWN,),
    "mlp.shared.w13": (SiteKind.SHARED_GATE, SiteKind.SHARED_UP),
    "mlp.shared.w2": (SiteKind.SHARED_DOWN,),
    "head": (SiteKind.HEAD,),
}
"""The kinds of sites in a parameter of `model.parameters`, in the order of its rows."""


@dataclass(frozen=True, slots=True)
class Target:
    """The sites that a tensor holds: one, or two whose rows follow one another or alternate."""

    sites: tuple[Site, ...]
    is_interleaved: bool = False


def plan_targets(layout: Layout, spec: ModelSpec) -> dict[str, Target]:
    """Return the tensors of a layout that hold sites, by name; every site is in exactly one."""
    shapes = spec.sites()
    targets: dict[str, Target] = {}
    for name, source in layout.model_names.items():
        if source.parameter in _SITES_OF_PARAMETER:
            targets[name] = _target(source, -1, shapes, dimensions(spec))
    for layer in spec.layers:
        letters = dimensions(spec, layer)
        for name, source in layout.names_of(layer).items():
            if source.parameter in _SITES_OF_PARAMETER:
                targets[name] = _target(source, layer.index, shapes, letters)
    return targets


def _target(
    source: Source, layer: int, shapes: Mapping[Site, SiteShape], letters: Mapping[str, int]
) -> Target:
    sites = tuple(Site(layer, kind) for kind in _SITES_OF_PARAMETER[source.parameter])
    if source.move is Move.ROWS:
        return Target((_site_from_row(parse_size(source.start, letters), sites, shapes),))
    return Target(sites, source.move is Move.ALTERNATING)


def _site_from_row(start: int, sites: tuple[Site, ...], shapes: Mapping[Site, SiteShape]) -> Site:
    """Return the site whose rows begin at a row of the parameter."""
    row = 0
    for site in sites:
        if row == start:
            return site
        row += shapes[site].out_features
    raise ValueError(f"no site of {sites} begins at row {start}")
