"""How SGLang would load an adapter, told from names and shapes: where it fails, if it does.

No rules here. The trap: most faults do not show at start-up. SGLang reads and merges the tensors
then; it looks for their modules and copies them only when the first request needs the adapter.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from inkling_cli.checks.launch.adapter_facts import AdapterFacts
from inkling_cli.checks.launch.sglang.layouts import is_shared_outer_server
from inkling_cli.checks.launch.sglang.merged_factors import (
    Layer,
    Shape,
    UnfitError,
    merge_layer,
    split_layers,
)
from inkling_cli.checks.launch.sglang.pool import declared_targets
from inkling_cli.checks.launch.sglang.served_model import served_spec
from inkling_cli.checks.launch.sglang.weights import stored_tensors
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.sglang_targets import POOL_TARGETS
from inkling_cli.checks.stage import Stage
from inkling_runtime.adapter.model_spec import LayerSpec, ModelSpec

_NUMBERED = re.compile(r"experts\.(\d+)\.")
_ONE_RANK = ("--tp-size", "--pp-size", "--ep-size")


@dataclass(frozen=True, slots=True)
class Fault:
    """Where loading ends, at which tensor, and why."""

    stage: Stage
    tensor: str
    message: str


def loading_fault(subject: LaunchSubject, adapter: AdapterFacts) -> Fault | None:
    """Return the first fault of an adapter's tensors, or None.

    Targets, layouts and ranks against the server's are other rules' business.
    """
    try:
        return _loading_fault(subject, adapter)
    except UnfitError as error:
        return Fault(load_stage(adapter), error.tensor, error.message)


def load_stage(adapter: AdapterFacts) -> Stage:
    """Return the stage at which SGLang reads an adapter's files."""
    return Stage.STARTUP if adapter.ref.at_startup else Stage.DYNAMIC_LOAD


def _loading_fault(subject: LaunchSubject, adapter: AdapterFacts) -> Fault | None:
    spec = served_spec(subject)
    tensors = {name: info.shape for name, info in sorted(stored_tensors(adapter).items())}
    layers, others = split_layers(tensors)
    if spec is not None and layers and max(layers) >= spec.num_layers:
        name = next(iter(layers[max(layers)]))
        message = f"`{name}` is of layer {max(layers)}, the model has {spec.num_layers} layers"
        return Fault(load_stage(adapter), name, message)
    for name in others:
        if "embed_tokens" not in name and "lm_head" not in name and _is_added_token(name):
            message = f"`{name}` holds embeddings of added tokens, which SGLang refuses"
            return Fault(load_stage(adapter), name, message)
    rank, num_shared = adapter.config.rank, spec.num_shared_experts if spec else None
    merged = {i: merge_layer(layer, rank, num_shared) for i, layer in sorted(layers.items())}
    for layer in merged.values():
        for name in layer:
            if _target_of(name) is None:
                message = f"`{name}` belongs to no module that SGLang adapts"
                return Fault(Stage.FIRST_USE, name, message)
    if spec is None or any(subject.launch.integer(name) not in (None, 1) for name in _ONE_RANK):
        return None
    is_shared_outer = is_shared_outer_server(subject)
    copier = _Copier(
        spec, rank, is_shared_outer, tells_layout=False not in adapter.expert_layouts()
    )
    faults: list[Iterator[Fault]] = [_unscalable(adapter)]
    faults += [copier.layer_faults(spec.layers[i], layer) for i, layer in merged.items()]
    declared = declared_targets(adapter)
    heads = {n: s for n, s in others.items() if _is_kept(n, declared)}
    found = next((fault for group in faults for fault in group), None)
    return found or next(copier.head_faults(heads), None)


def _unscalable(adapter: AdapterFacts) -> Iterator[Fault]:
    """Yield the first expert factor of a type that cannot be multiplied by the scale."""
    for name, info in sorted(stored_tensors(adapter).items()):
        if "experts" in name and "lora_B" in name and info.dtype.startswith("F8"):
            message = f"`{name}` is {info.dtype}, expected a type of at least 16 bits"
            yield Fault(Stage.FIRST_USE, name, message)


def _is_added_token(name: str) -> bool:
    return "input_embeddings" in name or "output_embeddings" in name


def _is_kept(name: str, declared: list[str] | None) -> bool:
    """Whether a tensor of no layer is read at all: embedding and head, if they are declared."""
    target = "embed_tokens" if "embed_tokens" in name else "lm_head"
    return target in name and (declared is None or target in declared)


def _target_of(name: str) -> str | None:
    """Return the pool target that SGLang takes a name for: the longest that is part of it."""
    return max((t for t in POOL_TARGETS if t in name), key=len, default=None)


@dataclass(frozen=True, slots=True)
class _Copier:
    """Compares merged tensors with the slots of one rank that holds the whole model."""

    spec: ModelSpec
    rank: int
    is_shared_outer: bool | None
    tells_layout: bool
    """Whether no other rule speaks of the layout of the adapter's experts."""

    def layer_faults(self, layer: LayerSpec, tensors: Layer) -> Iterator[Fault]:
        attention = [
            ("qkvr", 4, self.spec.hidden_size, self._qkvr_rows(layer)),
            ("wo_ud", 1, layer.num_heads * layer.head_dim, self.spec.hidden_size),
        ]
        dense = [
            ("gate_up_proj", 2, self.spec.hidden_size, 2 * self.spec.dense_width),
            ("down_proj", 1, self.spec.dense_width, self.spec.hidden_size),
        ]
        for target, count, width, rows in attention + (dense if layer.is_dense else []):
            yield from self._plain_faults(tensors, target, count, width, rows)
        if not layer.is_dense:
            yield from self._expert_faults(tensors)

    def _qkvr_rows(self, layer: LayerSpec) -> int:
        heads = layer.num_heads * (layer.head_dim + self.spec.d_rel)
        return heads + 2 * layer.num_kv_heads * layer.head_dim

    def _plain_faults(
        self, tensors: Layer, target: str, count: int, width: int, rows: int
    ) -> Iterator[Fault]:
        """Faults of a module with one A and one B. More rows of B than needed go unnoticed."""
        kind = {name: s for name, s in tensors.items() if _is_plain(name, s, target)}
        a, b = _last(kind, "A"), _last(kind, "B")
        if a is not None:
            seen = (a[1][0], min(a[1][-1], width)) if target in _ROW_SPLIT else a[1]
            yield from self._compare(a, seen, (count * self.rank, width))
        if b is not None:
            seen = (min(b[1][0], rows), *b[1][1:]) if target in _COLUMN_SPLIT else b[1]
            yield from self._compare(b, seen, (rows, self.rank))
        elif a is not None:
            yield Fault(Stage.FIRST_USE, a[0], f"`{a[0]}` has no lora_B beside it")

    def _expert_faults(self, tensors: Layer) -> Iterator[Fault]:
        for name, shape in tensors.items():
            target, number = _target_of(name), _NUMBERED.search(name)
            if target not in ("gate_up_proj", "down_proj") or "experts" not in name:
                continue
            if len(shape) != 3 and number is None:
                continue
            is_shared = "shared_experts." in name
            experts = self.spec.num_shared_experts if is_shared else self.spec.num_experts
            expected = self._expert_shape(target, "lora_A" in name)
            yield from self._count_faults(name, shape, number, experts, target)
            wide = 2 * self.rank if target == "gate_up_proj" else self.rank
            seen = shape[-2:]
            if "lora_A" in name and not (self.is_shared_outer and target == "gate_up_proj"):
                seen = (min(seen[0], wide), *seen[1:])
            yield from self._compare((name, shape), seen, expected)

    def _expert_shape(self, target: str, is_a: bool) -> Shape:
        hidden, inner = self.spec.hidden_size, self.spec.expert_width
        if target == "gate_up_proj":
            return (2 * self.rank, hidden) if is_a else (2 * inner, self.rank)
        return (self.rank, inner) if is_a else (hidden, self.rank)

    def _count_faults(
        self, name: str, shape: Shape, number: re.Match[str] | None, experts: int, target: str
    ) -> Iterator[Fault]:
        is_outer = (target == "gate_up_proj") is ("lora_A" in name)
        if is_outer and self.is_shared_outer:
            is_many = target == "down_proj" and number is None and shape[0] != 1
            if is_many and self.tells_layout:
                message = f"`{name}` holds {shape[0]} experts, expected 1 where A is stored once"
                yield Fault(Stage.FIRST_USE, name, message)
            return
        last = int(number[1]) if number else shape[0] - 1
        if last >= experts:
            message = f"`{name}` holds expert {last}, the model has {experts}"
            yield Fault(Stage.FIRST_USE, name, message)

    def head_faults(self, tensors: Layer) -> Iterator[Fault]:
        hidden, vocab = self.spec.hidden_size, self.spec.unpadded_vocab_size
        for name, shape in tensors.items():
            is_a = "lora_A" in name or "lora_embedding_A" in name
            if not (is_a or "lora_B" in name or "lora_embedding_B" in name):
                continue
            is_head = "embed_tokens" not in name
            if is_a:
                expected = (self.rank, hidden if is_head else vocab)
            elif is_head:
                expected = (min(shape[0], vocab), self.rank)
            else:
                expected = (hidden, self.rank)
            yield from self._compare((name, shape), shape, expected)

    def _compare(self, tensor: tuple[str, Shape], seen: Shape, slot: Shape) -> Iterator[Fault]:
        name, shape = tensor
        if seen != slot:
            message = f"`{name}` is {list(shape)} once merged, its slot takes {list(slot)}"
            yield Fault(Stage.FIRST_USE, name, message)


_ROW_SPLIT = ("wo_ud", "down_proj")
"""Modules of whose A the first columns are taken."""
_COLUMN_SPLIT = ("qkvr", "gate_up_proj")
"""Modules of whose B the first rows are taken."""


def _is_plain(name: str, shape: Shape, target: str) -> bool:
    if _target_of(name) != target or _NUMBERED.search(name):
        return False
    return "experts" not in name or len(shape) != 3


def _last(tensors: Layer, factor: str) -> tuple[str, Shape] | None:
    """Return the tensor that counts where several names mean the same factor: the last."""
    is_a = factor == "A"
    found = [(n, s) for n, s in tensors.items() if ("lora_A" in n) is is_a]
    return found[-1] if found else None
