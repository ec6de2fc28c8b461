"""Where a LoRA delta is added: the places of the model that an adapter can change.

A site is one weight matrix (or one stack of expert matrices) of one layer, gate and up apart,
whatever a dialect calls it and however it stores it. Dialects map tensor names to sites; the
model spec says which sites a model has and their widths.
"""

from dataclasses import dataclass
from enum import StrEnum


class Group(StrEnum):
    """The parts of the model that people adapt or leave out as a whole."""

    ATTENTION = "attention"
    DENSE = "dense"
    ROUTED = "routed"
    SHARED = "shared"
    HEAD = "head"


class SiteKind(StrEnum):
    """Kinds of sites. The values are the released adapter's names, gate and up told apart."""

    Q = "attn.wq_du"
    K = "attn.wk_dv"
    V = "attn.wv_dv"
    R = "attn.wr_du"
    O = "attn.wo_ud"  # noqa: E741 - the field's name
    DENSE_GATE = "mlp.gate"
    DENSE_UP = "mlp.up"
    DENSE_DOWN = "mlp.down"
    ROUTED_GATE = "mlp.experts.w1"
    ROUTED_UP = "mlp.experts.w3"
    ROUTED_DOWN = "mlp.experts.w2"
    SHARED_GATE = "mlp.shared_experts.w1"
    SHARED_UP = "mlp.shared_experts.w3"
    SHARED_DOWN = "mlp.shared_experts.w2"
    HEAD = "lm_head"

    @property
    def group(self) -> Group:
        """The group that the kind belongs to."""
        if self is SiteKind.HEAD:
            return Group.HEAD
        if self.value.startswith("attn."):
            return Group.ATTENTION
        if self.value.startswith("mlp.experts."):
            return Group.ROUTED
        if self.value.startswith("mlp.shared_experts."):
            return Group.SHARED
        return Group.DENSE

    @property
    def has_experts(self) -> bool:
        """Whether the site is a stack of expert matrices."""
        return self.group in (Group.ROUTED, Group.SHARED)

    @property
    def is_down(self) -> bool:
        """Whether the site maps the inner width back to the hidden one."""
        return self in (SiteKind.DENSE_DOWN, SiteKind.ROUTED_DOWN, SiteKind.SHARED_DOWN)


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """A kind of site in a layer; the head has layer -1."""

    layer: int
    kind: SiteKind

    def __str__(self) -> str:
        return self.kind.value if self.layer < 0 else f"layers.{self.layer}.{self.kind.value}"


HEAD_SITE = Site(-1, SiteKind.HEAD)


@dataclass(frozen=True, slots=True)
class SiteShape:
    """Widths of a site: `in_features` → `out_features`, times `experts` (0: no experts).

    The head has `out_features` = unpadded vocabulary; an adapter may also hold the padded rows.
    """

    in_features: int
    out_features: int
    experts: int = 0
