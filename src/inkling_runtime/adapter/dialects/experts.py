"""Rows of routed experts that several dialects share, whoever writes them.

Stacked (`experts.w1`) or one by one (`experts.0.gate_proj`). A producer may also store one factor
for all experts under a stack's name and the other one by one (`adapter_module.Halves`).
"""

from inkling_runtime.adapter.dialects.dialect import Row
from inkling_runtime.adapter.layouts import Layout
from inkling_runtime.adapter.sites import SiteKind

_KINDS = (SiteKind.ROUTED_GATE, SiteKind.ROUTED_UP, SiteKind.ROUTED_DOWN)
_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
_W = ("w1", "w3", "w2")


def _rows(names: tuple[str, ...], before: str, layout: Layout, is_written: bool) -> tuple[Row, ...]:
    return tuple(
        Row(f"layers.{{layer}}.mlp.experts.{before}{name}", layout, (kind,), is_written)
        for name, kind in zip(names, _KINDS, strict=True)
    )


STACKED_EXPERT_ROWS = _rows(_W, "", Layout.STACK, is_written=True)
"""w1, w3 and w2 as the released schema stacks them."""

STACKED_PROJECTION_ROWS = _rows(_PROJECTIONS, "", Layout.STACK, is_written=False)
"""The same under the names of projections."""

NUMBERED_PROJECTION_ROWS = _rows(_PROJECTIONS, "{expert}.", Layout.NUMBERED, is_written=False)
"""One by one, as tinker-cookbook expands them and vLLM takes them."""

NUMBERED_W_ROWS = _rows(_W, "{expert}.", Layout.NUMBERED, is_written=False)
"""One by one under the released names, as SGLang takes them too."""
