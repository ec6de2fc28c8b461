"""One module of an adapter file: its factors as stored and what its name means.

Not the factors of a site: those may be fused with others in one module, or lie in several
(`site_pairs`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from inkling_runtime.adapter.dialects.dialect import ParsedName
from inkling_runtime.adapter.layouts import Layout
from inkling_runtime.adapter.safetensors_file import TensorInfo
from inkling_runtime.adapter.sites import Site


@dataclass(frozen=True, slots=True)
class AdapterModule:
    """A pair of factors as stored, or half of one.

    Attributes:
        name: on disk, without the `.lora_A.weight` ending.
        table_name: the name looked up in the dialect's table.
        parsed: its row, layer and expert.
        a, b: the tensors; None where the file lacks one.
        rank, scaling: what the config gives the module (alpha / r, or alpha / √r).
    """

    name: str
    table_name: str
    parsed: ParsedName
    a: TensorInfo | None
    b: TensorInfo | None
    rank: int
    scaling: float

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites that it adapts."""
        return tuple(Site(self.parsed.layer, kind) for kind in self.parsed.row.kinds)

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """The factors that the file has."""
        return tuple(tensor for tensor in (self.a, self.b) if tensor is not None)


@dataclass(frozen=True, slots=True)
class Halves:
    """The experts of a site in two places: one factor for all of them, the other one by one.

    Megatron-Bridge writes shared-outer experts so: `experts.gate_proj.lora_A` once and
    `experts.0.gate_proj.lora_B` and so on. `numbered` is in the order of experts.
    """

    shared: AdapterModule
    numbered: tuple[AdapterModule, ...]


def find_halves(modules: Iterable[AdapterModule]) -> Mapping[Site, Halves]:
    """Return the sites whose modules with one factor each complete one another."""
    lone: dict[Site, list[AdapterModule]] = {}
    for module in modules:
        is_of_experts = module.parsed.row.layout in (Layout.STACK, Layout.NUMBERED)
        if is_of_experts and len(module.tensors) == 1:
            lone.setdefault(module.sites[0], []).append(module)
    found = {site: _match(group) for site, group in lone.items()}
    return {site: halves for site, halves in found.items() if halves is not None}


def _match(modules: list[AdapterModule]) -> Halves | None:
    shared = [m for m in modules if m.parsed.row.layout is Layout.STACK]
    numbered = [m for m in modules if m.parsed.row.layout is Layout.NUMBERED]
    if len(shared) != 1 or not numbered:
        return None
    if any((m.a is None) == (shared[0].a is None) for m in numbered):
        return None
    if len({m.parsed.expert for m in numbered}) != len(numbered):
        return None
    return Halves(shared[0], tuple(sorted(numbered, key=lambda m: m.parsed.expert)))
