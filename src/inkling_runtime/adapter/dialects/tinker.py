"""The released adapter schema: what Tinker and miles write.

Shared-outer experts in three dimensions, shared experts flat, dense gate and up fused over one A
with B rows [gate; up]. Also read: `base_model.model.` in front, experts one by one, which is what
tinker-cookbook's `build_lora_adapter` writes, and Tinker's other names of the head.
"""

from inkling_runtime.adapter.dialects.dialect import Dialect, Row
from inkling_runtime.adapter.dialects.experts import (
    NUMBERED_PROJECTION_ROWS,
    NUMBERED_W_ROWS,
    STACKED_EXPERT_ROWS,
)
from inkling_runtime.adapter.layouts import Layout
from inkling_runtime.adapter.sites import SiteKind

ATTENTION_ROWS = (
    Row("layers.{layer}.attn.wq_du", Layout.MATRIX, (SiteKind.Q,)),
    Row("layers.{layer}.attn.wk_dv", Layout.MATRIX, (SiteKind.K,)),
    Row("layers.{layer}.attn.wv_dv", Layout.MATRIX, (SiteKind.V,)),
    Row("layers.{layer}.attn.wr_du", Layout.MATRIX, (SiteKind.R,)),
    Row("layers.{layer}.attn.wo_ud", Layout.MATRIX, (SiteKind.O,)),
)

DENSE_GATE_UP = (SiteKind.DENSE_GATE, SiteKind.DENSE_UP)

DENSE_DOWN_ROW = Row("layers.{layer}.mlp.down_proj", Layout.MATRIX, (SiteKind.DENSE_DOWN,))

SHARED_EXPERT_ROWS = (
    Row("layers.{layer}.mlp.shared_experts.w1", Layout.FLAT, (SiteKind.SHARED_GATE,)),
    Row("layers.{layer}.mlp.shared_experts.w3", Layout.FLAT, (SiteKind.SHARED_UP,)),
    Row("layers.{layer}.mlp.shared_experts.w2", Layout.FLAT, (SiteKind.SHARED_DOWN,)),
)

HEAD_ROW = Row("language_model.lm_head", Layout.MATRIX, (SiteKind.HEAD,))


def read_head_rows(*names: str) -> tuple[Row, ...]:
    """Return rows of other names of the head, which are only read."""
    return tuple(Row(name, Layout.MATRIX, (SiteKind.HEAD,), is_written=False) for name in names)


UNEMBED_ROWS = read_head_rows(
    "unembed_tokens", "model.unembed_tokens", "unembed", "model.llm.unembed"
)
"""The head under Tinker's name for other models, and under the raw checkpoint's."""


TINKER = Dialect(
    name="tinker",
    title="released schema (Tinker, miles)",
    wrappers=("", "base_model.model."),
    roots=("language_model.",),
    rows=(
        *ATTENTION_ROWS,
        Row("layers.{layer}.mlp.gate_up_proj", Layout.GATE_UP, DENSE_GATE_UP),
        DENSE_DOWN_ROW,
        *STACKED_EXPERT_ROWS,
        *NUMBERED_PROJECTION_ROWS,
        *NUMBERED_W_ROWS,
        *SHARED_EXPERT_ROWS,
        HEAD_ROW,
        *UNEMBED_ROWS,
    ),
)
