"""Which sites keep one basis of rank components, and so are decomposed together.

Mostly a site by itself. Gate and up that one tensor holds share their A, and what the target lays
out as one matrix is one already here, so that the rank of a written module is the rank asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from inkling_runtime.adapter.arithmetic import cast
from inkling_runtime.adapter.dialects.dialect import Dialect
from inkling_runtime.adapter.moves import Array, join, nbytes_of
from inkling_runtime.adapter.pairs import Form, Pair, expand_experts, tie, to_flat
from inkling_runtime.adapter.site_pairs import GATED, Contents, SitePairs
from inkling_runtime.adapter.sites import Group, Site, SiteKind


@dataclass(frozen=True, slots=True)
class BasisGroup:
    """Sites over one basis.

    Attributes:
        sites: in order.
        pairs: their factors, of one form; with experts, all B have one leading size.
        is_one_a: whether all pairs have the same A; if not, the A are joined along the rank.
    """

    sites: tuple[Site, ...]
    pairs: tuple[Pair, ...]
    is_one_a: bool

    @property
    def name(self) -> str:
        """The sites as a text: `layers.0.mlp.gate and layers.0.mlp.up`."""
        return " and ".join(map(str, self.sites))

    def columns(self) -> list[slice]:
        """Return the rank components of the joined A that the B of each pair belongs to."""
        if self.is_one_a:
            return [slice(0, self.rank)] * len(self.pairs)
        ends = list(accumulate((pair.rank for pair in self.pairs), initial=0))
        return [slice(*both) for both in pairwise(ends)]

    def joined_a(self) -> Array:
        """Return the one A, or all of them along the rank, in F64 where their dtypes differ."""
        if self.is_one_a:
            return self.pairs[0].a
        parts = [pair.a for pair in self.pairs]
        if len({part.dtype for part in parts}) > 1:
            parts = [cast(part, "F64") for part in parts]
        return join(parts, len(parts[0].shape) - 2)

    @property
    def nbytes(self) -> int:
        """Bytes of all factors that are read."""
        return nbytes_of(self.joined_a()) + sum(nbytes_of(pair.b) for pair in self.pairs)

    @property
    def rank(self) -> int:
        """The rank before."""
        ranks = [pair.rank for pair in self.pairs]
        return ranks[0] if self.is_one_a else sum(ranks)

    @property
    def is_common(self) -> bool:
        """Whether all experts share the basis, as they do where either factor is stored once."""
        first = self.pairs[0]
        return first.form is not Form.STACK or 1 in (first.a.shape[0], first.b.shape[0])

    def tied(self, contents: Contents) -> tuple[Pair, ...]:
        """Return the pairs over one A, with every delta as it was (see `pairs.tie`)."""
        if self.is_one_a:
            return tuple(replace(pair, a=self.pairs[0].a) for pair in self.pairs)
        gate, up = self.pairs
        return tie(gate, up, contents.is_same)


def group_sites(pairs: SitePairs, dialect: Dialect, contents: Contents) -> list[BasisGroup]:
    """Return all sites in groups, as the target needs them and the source has them."""
    flat_kinds = _flat_kinds(dialect)
    pairs = {s: to_flat(pair) if s.kind in flat_kinds else pair for s, pair in pairs.items()}
    groups: list[BasisGroup] = []
    for gate_kind, up_kind in GATED:
        for site in [site for site in pairs if site.kind is gate_kind]:
            both = (site, Site(site.layer, up_kind))
            if both[1] in pairs and (group := _joined(both, pairs, dialect, contents)):
                groups.append(group)
    grouped = {site for group in groups for site in group.sites}
    groups += [_alone(site, pair) for site, pair in pairs.items() if site not in grouped]
    return sorted(groups, key=lambda group: group.sites)


def _flat_kinds(dialect: Dialect) -> set[SiteKind]:
    """Return the kinds of shared experts that the target holds side by side in any case."""
    rows = [row for row in dialect.written_rows() if row.kinds[0].group is Group.SHARED]
    if any(row.layout.form is not Form.FLAT for row in rows):
        return set()
    return {kind for row in rows for kind in row.kinds}


def is_fused(dialect: Dialect, gate: SiteKind, up: SiteKind) -> bool:
    """Return whether the target writes gate and up as one module."""
    return any(row.kinds == (gate, up) for row in dialect.written_rows())


def _alone(site: Site, pair: Pair) -> BasisGroup:
    return BasisGroup((site,), (pair,), is_one_a=True)


def _joined(
    sites: tuple[Site, Site], pairs: SitePairs, dialect: Dialect, contents: Contents
) -> BasisGroup | None:
    """Return gate and up as a group, None where each may have an A of its own."""
    gate, up = (pairs[site] for site in sites)
    if gate.form is not up.form or gate.a.shape[-1] != up.a.shape[-1]:
        return None
    is_one_a = gate.a == up.a
    if not is_one_a and not is_fused(dialect, *(site.kind for site in sites)):
        return None
    is_one_a = is_one_a or contents.is_same(gate.a, up.a)
    return BasisGroup(sites, _alike((gate, up)), is_one_a)


def _alike(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """Return stacks whose A have one leading size, and whose B have."""
    if pairs[0].form is not Form.STACK:
        return tuple(pairs)
    count_a, count_b = (max(pair.a.shape[0] for pair in pairs), max(p.b.shape[0] for p in pairs))
    return tuple(
        replace(pair, a=expand_experts(pair.a, count_a), b=expand_experts(pair.b, count_b))
        for pair in pairs
    )
