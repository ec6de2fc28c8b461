"""What a resized adapter keeps of the deltas, module by module, and the plan that writes it."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.sites import Site


@dataclass(frozen=True, slots=True)
class KeptModule:
    """What a module keeps: its sites, rank before, Σσ² of its delta and of what is cut."""

    sites: tuple[Site, ...]
    rank_before: int
    energy: float
    lost: float

    @property
    def kept(self) -> float:
        """The share of the energy that is kept; all of nothing."""
        return 1 - self.lost_share

    @property
    def lost_share(self) -> float:
        """The share of the energy that is lost."""
        return self.lost / self.energy if self.energy else 0.0

    @property
    def relative_error(self) -> float:
        """‖ΔW − ΔW'‖ / ‖ΔW‖ before rounding."""
        return sqrt(self.lost_share)

    @property
    def name(self) -> str:
        """The sites as a text."""
        return " and ".join(map(str, self.sites))


def total_of(modules: Iterable[KeptModule]) -> KeptModule:
    """Return modules as one: their energies added."""
    found = tuple(modules)
    return KeptModule(
        tuple(site for module in found for site in module.sites),
        max((module.rank_before for module in found), default=0),
        sum(module.energy for module in found),
        sum(module.lost for module in found),
    )


@dataclass(frozen=True, slots=True)
class Resize:
    """A planned resize: the conversion that writes it, the rank, and what each module keeps."""

    conversion: Conversion
    rank: int
    modules: tuple[KeptModule, ...]

    @property
    def total(self) -> KeptModule:
        """All modules as one."""
        return total_of(self.modules)

    @property
    def worst(self) -> KeptModule:
        """The module that loses the largest share, the first of several."""
        return max(self.modules, key=lambda module: module.lost_share)


def format_kept(module: KeptModule) -> str:
    """Return the share that is kept, in percent; `100 %` only where all of it is."""
    if module.lost == 0:
        return "100 %"
    return "above 99.99 %" if module.kept > 0.9999 else f"{100 * module.kept:.2f} %"
