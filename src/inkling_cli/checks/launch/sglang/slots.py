"""The slots of an SGLang server for one adapter: which there are, and what is put into them.

No rules here. The trap: SGLang tells modules by parts of names. The longest target that is
anywhere in a name decides, the text in front of `layers.N.` is not looked at, and every tensor of
a layer that is not named `lora_A` counts as a `lora_B`. Where several mean the same slot, the last
one in the order of reading gets it.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from inkling_cli.checks.launch.sglang.merged_factors import (
    Factor,
    Layer,
    UnfitError,
    stack_flat,
)
from inkling_cli.checks.launch.sglang.served_model import has_sink
from inkling_cli.checks.sglang_targets import HALVES
from inkling_runtime.adapter.model_spec import LayerSpec, ModelSpec

ROUTED, SHARED = "_moe", "_shared_moe"
"""Endings of the slots of experts."""
_NUMBERED = re.compile(r"experts\.(\d+)\.")


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """A place for one factor: a target, with `_moe` or `_shared_moe` for experts, and A or B."""

    target: str
    factor: str

    @property
    def kind(self) -> str:
        """The target without the ending of experts."""
        return self.target.removesuffix(SHARED).removesuffix(ROUTED)

    @property
    def has_experts(self) -> bool:
        """Whether it holds one matrix for each expert."""
        return self.target.endswith(ROUTED)

    @property
    def is_outer(self) -> bool:
        """Whether it is the hidden side of experts, which may be stored once for all of them."""
        return self.has_experts and (self.kind == HALVES[0]) is (self.factor == "A")


Named = tuple[str, Factor]
"""A factor and the name under which SGLang has it."""
Content = dict[int | None, Named]
"""What a slot gets: one factor (None), or one for each expert that is stored by its number."""


@dataclass(frozen=True, slots=True)
class SlotShape:
    """What a slot takes.

    Attributes:
        rows: of the parts that are joined in it, in order.
        columns: its width.
        experts: places for experts; 0 where it is a plain matrix.
    """

    rows: tuple[int, ...]
    columns: int
    experts: int = 0


@dataclass(frozen=True, slots=True)
class ServerSlots:
    """The slots that a server has for an adapter, all ranks together.

    Attributes:
        spec: the base model.
        targets: what the pool covers.
        is_shared_outer: whether it stores the hidden side of experts once; None if not known.
        rank: the adapter's `r`.
    """

    spec: ModelSpec
    targets: Collection[str]
    is_shared_outer: bool | None
    rank: int

    @property
    def adapts_experts(self) -> bool:
        """Whether experts have slots at all: both halves of them are targets."""
        return set(HALVES) <= set(self.targets)

    @property
    def has_sink(self) -> bool:
        """Whether the shared experts are experts to SGLang, not one dense MLP."""
        return has_sink(self.spec)

    def active_targets(self, layer: LayerSpec) -> set[str]:
        """Return the slots' targets that a module of a layer reads."""
        found = {name for name in self.targets if name in ("qkvr", "wo_ud")}
        has_dense = layer.is_dense or (self.spec.num_shared_experts and not self.has_sink)
        if has_dense:
            found |= set(HALVES) & set(self.targets)
        if not layer.is_dense and self.adapts_experts:
            found |= {name + ROUTED for name in HALVES}
            found |= {name + SHARED for name in HALVES} if self.has_sink else set()
        return found

    def fill(self, layer: LayerSpec, tensors: Layer) -> dict[Slot, Content]:
        """Return what each slot of a layer gets, active or not.

        Raises:
            UnfitError: SGLang fails at a tensor.
        """
        contents: dict[Slot, Content] = {}
        for name, factor in tensors.items():
            target = target_of(name, self.targets)
            if target is None:
                raise UnfitError(name, no_module(name))
            self._put(contents, layer, target, (name, factor))
        return contents

    def _put(
        self, contents: dict[Slot, Content], layer: LayerSpec, target: str, named: Named
    ) -> None:
        name, factor = named
        ending, number = self._ending(layer, target, named), _NUMBERED.search(name)
        slot = Slot(target + ending, "A" if "lora_A" in name else "B")
        if number is None or not ending:
            if ending and len(factor.shape) == 2:
                count, is_down = self.spec.num_shared_experts, target == HALVES[1]
                factor = stack_flat(name, factor, count, is_down=is_down)
            if ending and len(factor.shape) != 3:
                dimensions = f"has {len(factor.shape)} dimensions, expected 2 or 3"
                raise UnfitError(name, f"`{name}` {dimensions}")
            contents[slot] = {None: (name, factor)}
            return
        if not self._has_numbered(slot):
            raise UnfitError(name, no_module(name))
        if Slot(slot.target, "A") not in contents:
            contents[Slot(slot.target, "A")] = {}
            contents[Slot(slot.target, "B")] = {}
        if None in contents.get(slot, {None: named}):
            message = f"`{name}` is one expert beside a stack of all of them"
            raise UnfitError(name, f"{message}, expected one of the two")
        contents[slot][int(number[1])] = named

    def _has_numbered(self, slot: Slot) -> bool:
        """Return whether any layer has such a slot; without one a numbered expert is refused."""
        if slot.kind not in HALVES or all(layer.is_dense for layer in self.spec.layers):
            return False
        return not slot.target.endswith(SHARED) or (self.adapts_experts and self.has_sink)

    def _ending(self, layer: LayerSpec, target: str, named: Named) -> str:
        """Return the ending of the slot that SGLang means: none, routed or shared experts."""
        name, factor = named
        is_stack = len(factor.shape) == 3
        if "shared_experts." in name:
            has_slot = not layer.is_dense and self.adapts_experts and self.has_sink
            if is_stack or (has_slot and target in HALVES):
                return SHARED
            if _NUMBERED.search(name):
                message = (
                    f"`{name}` is one shared expert, for which layer {layer.index} has no slot"
                )
                raise UnfitError(name, message)
            return ""
        is_expert = _NUMBERED.search(name) or (is_stack and "experts" in name)
        return ROUTED if is_expert else ""

    def shape(self, layer: LayerSpec, slot: Slot) -> SlotShape:
        """Return what an active slot of a layer takes."""
        rank = self.rank
        parts, width, rows = self._sides(layer, slot)
        experts = self.num_experts(slot)
        if slot.is_outer and self.is_shared_outer:
            experts = 1
        if slot.factor == "A":
            return SlotShape((rank,) * parts, width, experts)
        return SlotShape(rows, rank, experts)

    def num_experts(self, slot: Slot) -> int:
        """Return how many experts of a slot's kind the model has; 0 for a plain slot."""
        if not slot.has_experts:
            return 0
        is_shared = slot.target.endswith(SHARED)
        return self.spec.num_shared_experts if is_shared else self.spec.num_experts

    def _sides(self, layer: LayerSpec, slot: Slot) -> tuple[int, int, tuple[int, ...]]:
        """Return the number of joined A, the width of A and the rows of each part of B."""
        spec, hidden = self.spec, self.spec.hidden_size
        if slot.kind == "qkvr":
            query, key = layer.num_heads * layer.head_dim, layer.num_kv_heads * layer.head_dim
            return 4, hidden, (query, key, key, layer.num_heads * spec.d_rel)
        if slot.kind == "wo_ud":
            return 1, layer.num_heads * layer.head_dim, (hidden,)
        inner = spec.expert_width if slot.has_experts else self._dense_width(layer)
        return (2, hidden, (inner, inner)) if slot.kind == HALVES[0] else (1, inner, (hidden,))

    def _dense_width(self, layer: LayerSpec) -> int:
        """Return the inner width of a layer's dense MLP; without a sink, of its shared experts."""
        spec = self.spec
        if layer.is_dense:
            return spec.dense_width
        size = spec.config.get("shared_experts_size") or 1
        return spec.num_shared_experts * size * spec.expert_width


def no_module(name: str) -> str:
    """Return in words that SGLang has no module for a tensor."""
    return f"`{name}` belongs to no module that SGLang adapts"


def target_of(name: str, targets: Collection[str]) -> str | None:
    """Return the target that SGLang takes a name for: the longest that is part of it."""
    return max((target for target in targets if target in name), key=len, default=None)
