"""Embedding and head: which of their factors SGLang keeps, and how they go into their slots.

No rules here. The trap: several tensors may be meant for one slot, and each is copied over the one
before. A lora_B of the head may have fewer rows than the vocabulary: the rest keeps what it held.
"""

from collections.abc import Collection

from inkling_cli.checks.launch.sglang.causes import Cause
from inkling_cli.checks.launch.sglang.merged_factors import Factor, Layer
from inkling_cli.checks.launch.sglang.slot_fit import Fit
from inkling_cli.checks.launch.sglang.slots import SlotShape, target_of
from inkling_runtime.adapter.model_spec import ModelSpec

EMBEDDING, HEAD = "embed_tokens", "lm_head"


def module_of(name: str) -> str | None:
    """Return the module of no layer that SGLang takes a name for: embedding, head or none."""
    return next((target for target in (EMBEDDING, HEAD) if target in name), None)


def is_kept(name: str, declared: Collection[str] | None) -> bool:
    """Whether a tensor of no layer is read at all: embedding and head, if they are declared."""
    module = module_of(name)
    return module is not None and (declared is None or module in declared)


def fit_heads(spec: ModelSpec, rank: int, tensors: Layer, targets: Collection[str]) -> Fit:
    """Return how the kept factors of embedding and head fit their slots."""
    fit = Fit()
    filled: dict[tuple[str, str], int] = {}
    for name, factor in reversed(tensors.items()):
        target, side = target_of(name, targets), _side(name)
        if side is None or target != module_of(name) or target is None:
            continue
        rows = factor.shape[0] if factor.shape else 0
        if rows <= filled.get((target, side), 0):
            continue
        covered = filled.get((target, side), 0)
        filled[target, side] = rows
        shape = _shape(spec, rank, target, side)
        if target == HEAD and side == "B" and rows < sum(shape.rows):
            _put_short(fit, name, factor, shape)
        else:
            fit.put((name, factor), factor.shape, shape)
        if covered:
            fit.mark(
                factor, Cause.CUT, f"a later tensor takes the place of its first {covered} rows"
            )
    return fit


def _put_short(fit: Fit, name: str, factor: Factor, shape: SlotShape) -> None:
    """Put a lora_B of the head that does not reach to the end of the vocabulary."""
    rows, whole = factor.shape[0], sum(shape.rows)
    fit.put((name, factor), factor.shape, SlotShape((rows,), shape.columns))
    reason = f"it has {rows} rows, the vocabulary {whole}; the others keep what they held before"
    fit.mark(factor, Cause.CUT, reason)


def _shape(spec: ModelSpec, rank: int, target: str, side: str) -> SlotShape:
    hidden, vocab = spec.hidden_size, spec.unpadded_vocab_size
    width, rows = (hidden, vocab) if target == HEAD else (vocab, hidden)
    return SlotShape((rank,), width) if side == "A" else SlotShape((rows,), rank)


def _side(name: str) -> str | None:
    """Return whether a name says A or B; anything else is passed over."""
    for side in "AB":
        if f"lora_{side}" in name or f"lora_embedding_{side}" in name:
            return side
    return None
