"""From sites to the modules of the target dialect, as pairs that are ready to be laid out.

The rows of the target's table say which sites go into one module. Where a module fuses gate and
up, both come over one A; where a consumer takes one rank and one scaling, all modules get it.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from inkling_runtime.adapter.dialects.dialect import Dialect, Row
from inkling_runtime.adapter.layouts import Layout
from inkling_runtime.adapter.moves import entries
from inkling_runtime.adapter.pairs import (
    Form,
    Pair,
    expand_to_experts,
    pad_rank,
    tie,
    with_scaling,
    zero_like,
)
from inkling_runtime.adapter.site_pairs import Contents, SitePairs
from inkling_runtime.adapter.sites import Group, Site
from inkling_runtime.errors import InklingError


@dataclass(frozen=True, slots=True)
class TargetModule:
    """A module to be written: its row, layer, expert (-1: none) and the pairs it lays out."""

    row: Row
    layer: int
    pairs: tuple[Pair, ...]
    expert: int = -1

    @property
    def rank(self) -> int:
        """The rank that the config must give it."""
        return self.pairs[0].rank

    @property
    def scaling(self) -> float:
        """The scaling that the config must give it."""
        return self.pairs[0].scaling


def target_modules(pairs: SitePairs, dialect: Dialect, contents: Contents) -> list[TargetModule]:
    """Return the modules of the target dialect, in layer order."""
    rows = _rows_for(dialect, pairs)
    modules = [
        module
        for layer in sorted({site.layer for site in pairs})
        for row in rows
        for module in _modules_of_row(row, layer, pairs, contents)
    ]
    return modules if dialect.honours_patterns else _make_uniform(modules)


def _rows_for(dialect: Dialect, pairs: SitePairs) -> list[Row]:
    """Return the rows to write; where experts can be stacked or numbered, those that fit."""
    rows = dialect.written_rows()
    if not any(row.layout is Layout.NUMBERED for row in rows):
        return rows
    routed = [pair for site, pair in pairs.items() if site.kind.group is Group.ROUTED]
    can_stack = all(pair.is_shared_outer for pair in routed)
    unwanted = Layout.NUMBERED if can_stack else Layout.STACK
    return [row for row in rows if row.layout is not unwanted]


def _modules_of_row(
    row: Row, layer: int, pairs: SitePairs, contents: Contents
) -> Iterable[TargetModule]:
    present = [pairs[site] for kind in row.kinds if (site := Site(layer, kind)) in pairs]
    if not present or present[0].form is not row.layout.form:
        return
    if row.layout is Layout.NUMBERED:
        pair = expand_to_experts(present[0])
        for e, (a, b) in enumerate(zip(entries(pair.a), entries(pair.b), strict=True)):
            one = replace(pair, a=a, b=b, form=Form.MATRIX)
            yield TargetModule(row, layer, (one,), e)
    elif len(row.kinds) == 2:
        yield TargetModule(row, layer, _tied(row, layer, pairs, contents))
    else:
        yield TargetModule(row, layer, (present[0],))


def _tied(row: Row, layer: int, pairs: SitePairs, contents: Contents) -> tuple[Pair, Pair]:
    """Return gate and up over one A; one that is absent gets a delta of zero."""
    gate, up = (pairs.get(Site(layer, kind)) for kind in row.kinds)
    if gate is None and up is not None:
        return zero_like(up, up.b.shape[-2]), up
    if up is None and gate is not None:
        return gate, zero_like(gate, gate.b.shape[-2])
    assert gate is not None
    assert up is not None
    _require_alike(row, layer, gate, up)
    return tie(gate, up, contents.is_same)


def _require_alike(row: Row, layer: int, gate: Pair, up: Pair) -> None:
    """Require that gate and up fit into one tensor each."""
    where = f"`{row.template.format(layer=layer)}`"
    for letter, first, second in (("A", gate.a, up.a), ("B", gate.b, up.b)):
        if first.dtype != second.dtype:
            raise InklingError(
                f"gate and up have the dtypes {first.dtype} and {second.dtype} in {letter}, "
                f"the target's {where} holds both in one tensor"
            )
    if gate.b.shape[-2] != up.b.shape[-2] or gate.a.shape[-1] != up.a.shape[-1]:
        raise InklingError(f"gate and up of {where} have other widths")


def _make_uniform(modules: list[TargetModule]) -> list[TargetModule]:
    """Return the modules with one rank (zero-padded) and one scaling (the rest goes into B)."""
    rank = max((module.rank for module in modules), default=0)
    counts = Counter(module.scaling for module in modules if module.scaling)
    scaling = counts.most_common(1)[0][0] if counts else 0.0
    return [
        replace(
            module,
            pairs=tuple(pad_rank(with_scaling(pair, scaling), rank) for pair in module.pairs),
        )
        for module in modules
    ]
