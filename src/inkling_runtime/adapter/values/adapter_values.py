"""What the numbers of an adapter say, as values: per stored tensor and per site.

Not how they are computed: nothing here needs numpy, so that rules and pictures stay light. What
was not read or not computed stands beside the rest with its reason; nothing is taken for sound
because it is absent.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from inkling_runtime.adapter.sites import Group, Site


@dataclass(frozen=True, slots=True)
class TensorValues:
    """What the elements of one tensor are.

    Attributes:
        dtype: as stored.
        num_elements: how many there are.
        num_nan, num_inf: how many are no numbers, and how many infinite.
        largest: the largest magnitude of the finite ones.
        is_constant: whether all are the same bits (and there are two or more).
        is_exactly_bf16: for F32, whether every element is a bf16 number; False for the rest.
    """

    dtype: str
    num_elements: int
    num_nan: int
    num_inf: int
    largest: float
    is_constant: bool
    is_exactly_bf16: bool

    @property
    def is_finite(self) -> bool:
        """Whether all elements are numbers."""
        return self.num_nan + self.num_inf == 0

    @property
    def is_zero(self) -> bool:
        """Whether all elements are zero."""
        return self.is_finite and self.largest == 0


@dataclass(frozen=True, slots=True)
class DeltaValues:
    """What a site adds to the base weights, ΔW = s·B·A.

    Attributes:
        norm: Frobenius norm of ΔW; of experts, the root of the sum of their squares.
        effective_rank: exp of the entropy of σ / Σσ over the singular values σ of ΔW (Roy and
            Vetterli 2007); of experts, the median. None where ΔW is zero.
        rank: R, its upper limit.
        scaling: s.
        expert_norms: the norm of each expert; empty for a site without experts, and for experts
            that are stored side by side in one matrix.
        num_zero: how many experts (or whether the site: 1) have a B·A of exact zeros.
    """

    norm: float
    effective_rank: float | None
    rank: int
    scaling: float
    expert_norms: tuple[float, ...]
    num_zero: int

    @property
    def is_zero(self) -> bool:
        """Whether B·A is zero everywhere."""
        return self.num_zero == max(len(self.expert_norms), 1)


@dataclass(frozen=True, slots=True)
class AdapterValues:
    """What was read of an adapter.

    Attributes:
        tensors: by name, in the order of the file.
        sites: by site, in their order.
        bytes_read: of the tensors' data.
        not_read: tensors whose elements are no floats that are understood, with the reason.
        not_finite: sites whose delta has no norm, as a factor holds NaN or Inf.
        not_computed: sites whose delta has no norm for another reason, with the reason.
    """

    tensors: Mapping[str, TensorValues]
    sites: Mapping[Site, DeltaValues]
    bytes_read: int
    not_read: Mapping[str, str] = field(default_factory=dict)
    not_finite: tuple[Site, ...] = ()
    not_computed: Mapping[Site, str] = field(default_factory=dict)

    @property
    def norm(self) -> float:
        """Frobenius norm of all deltas together."""
        return total_norm(self.sites.values())

    def group_shares(self) -> dict[Group, float]:
        """Return each group's share of Σ‖ΔW‖²; empty where all deltas are zero."""
        total = self.norm
        if total == 0:
            return {}
        sites = {group: self._of_group(group) for group in Group}
        return {g: (total_norm(found) / total) ** 2 for g, found in sites.items() if found}

    def layer_norms(self) -> dict[int, float]:
        """Return the norm of all deltas of each layer; the head is layer -1."""
        layers: dict[int, list[DeltaValues]] = {}
        for site, delta in self.sites.items():
            layers.setdefault(site.layer, []).append(delta)
        return {layer: total_norm(found) for layer, found in sorted(layers.items())}

    def _of_group(self, group: Group) -> list[DeltaValues]:
        return [delta for site, delta in self.sites.items() if site.kind.group is group]


def total_norm(deltas: Iterable[DeltaValues]) -> float:
    """Return the Frobenius norm of several deltas together."""
    return math.hypot(*(delta.norm for delta in deltas))
