"""Names of the raw checkpoint, for adapters trained on its modules as they are. Only read.

Fused gate and up have rows g0, u0, g1, u1 and so on, as the base weights have them, within each
expert where there are several. Whatever such an adapter leaves to the released names, as gate and
up apart or the shared experts flat, is read as the released schema has it; `mlp.gate_up_proj` is
not, because its rows are [gate; up] there and alternate in vLLM.
"""

from inkling_runtime.adapter.dialects.dialect import Dialect, Row
from inkling_runtime.adapter.dialects.experts import (
    NUMBERED_PROJECTION_ROWS,
    NUMBERED_W_ROWS,
    STACKED_EXPERT_ROWS,
    STACKED_PROJECTION_ROWS,
)
from inkling_runtime.adapter.dialects.tinker import (
    ATTENTION_ROWS,
    DENSE_DOWN_ROW,
    DENSE_GATE_UP,
    HEAD_ROW,
    SHARED_EXPERT_ROWS,
    UNEMBED_ROWS,
    read_head_rows,
)
from inkling_runtime.adapter.layouts import Layout
from inkling_runtime.adapter.sites import SiteKind


def _read(template: str, layout: Layout, *kinds: SiteKind) -> Row:
    return Row(f"layers.{{layer}}.mlp.{template}", layout, kinds, is_written=False)


RAW_DENSE_ROWS = (
    _read("w13_dn", Layout.GATE_UP_INTERLEAVED, *DENSE_GATE_UP),
    _read("w2_md", Layout.MATRIX, SiteKind.DENSE_DOWN),
)
"""The dense MLP, which vLLM takes under these names too."""

_ROUTED_GATE_UP = (SiteKind.ROUTED_GATE, SiteKind.ROUTED_UP)
_SHARED_GATE_UP = (SiteKind.SHARED_GATE, SiteKind.SHARED_UP)
_ALTERNATING = Layout.STACK_GATE_UP_INTERLEAVED


RAW = Dialect(
    name="raw",
    title="names of the raw checkpoint",
    wrappers=("", "base_model.model."),
    roots=("model.llm.", "model.", "language_model."),
    rows=(
        *ATTENTION_ROWS,
        *RAW_DENSE_ROWS,
        DENSE_DOWN_ROW,
        _read("experts.w13", _ALTERNATING, *_ROUTED_GATE_UP),
        _read("experts.w13_weight", _ALTERNATING, *_ROUTED_GATE_UP),
        _read("experts.w2_weight", Layout.STACK, SiteKind.ROUTED_DOWN),
        *STACKED_EXPERT_ROWS,
        *STACKED_PROJECTION_ROWS,
        *NUMBERED_PROJECTION_ROWS,
        *NUMBERED_W_ROWS,
        _read("shared_experts.shared_w13", _ALTERNATING, *_SHARED_GATE_UP),
        _read("shared_experts.shared_w13_weight", _ALTERNATING, *_SHARED_GATE_UP),
        _read("shared_experts.shared_w2", Layout.STACK, SiteKind.SHARED_DOWN),
        _read("shared_experts.shared_w2_weight", Layout.STACK, SiteKind.SHARED_DOWN),
        *SHARED_EXPERT_ROWS,
        *UNEMBED_ROWS,
        *read_head_rows("lm_head"),
        HEAD_ROW,
    ),
    instead="tinker",
)
