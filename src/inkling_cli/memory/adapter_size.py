"""The size of an adapter of the released schema, from the base model's sizes alone.

Not of an adapter at hand: that one's file tells. The trap: the head of a file has either the
padded or the unpadded rows of the vocabulary; trainers count the padded ones.
"""

from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.sites import Site, SiteKind, SiteShape

_FUSED_A = (SiteKind.DENSE_UP,)
"""Sites that share the A of another one in the released schema."""


def adapter_elements(
    spec: ModelSpec, rank: int, *, is_shared_outer: bool = True, has_padded_head: bool = False
) -> int:
    """Return the numbers in an adapter that adapts every module.

    Args:
        spec: the base model.
        rank: of every module.
        is_shared_outer: whether the hidden side of routed experts is stored once; otherwise
            every expert has its own. Shared experts are flat either way.
        has_padded_head: whether the head has the padded rows.
    """
    total = 0
    for site, shape in spec.sites().items():
        total += _site_elements(site, shape, is_shared_outer)
    if has_padded_head:
        total += spec.vocab_size - spec.unpadded_vocab_size
    return total * rank


def _site_elements(site: Site, shape: SiteShape, is_shared_outer: bool) -> int:
    """Return the elements of both factors for each unit of rank."""
    kind = site.kind
    a, b = shape.in_features, shape.out_features
    if kind in _FUSED_A:
        return b
    if not kind.has_experts:
        return a + b
    inner, outer = (a, b) if kind.is_down else (b, a)
    copies = 1 if is_shared_outer or kind.value.startswith("mlp.shared_experts.") else shape.experts
    return inner * shape.experts + outer * copies
