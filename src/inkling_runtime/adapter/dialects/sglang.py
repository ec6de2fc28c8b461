"""What SGLang 0.5.23 applies completely: the released names, and its own runtime names.

SGLang takes one scale, alpha / r, for the whole adapter and one rank: rsLoRA and patterns are
ignored. Written names are the released ones; the runtime names (`qkvr`, gate and up apart,
shared experts in three dimensions, experts one by one) are read.
"""

from dataclasses import replace

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
    read_head_rows,
)
from inkling_runtime.adapter.layouts import Layout
from inkling_runtime.adapter.sites import SiteKind

_QKVR = (SiteKind.Q, SiteKind.K, SiteKind.V, SiteKind.R)
_ROUTED_GATE_UP = (SiteKind.ROUTED_GATE, SiteKind.ROUTED_UP)


def _read(template: str, layout: Layout, *kinds: SiteKind) -> Row:
    return Row(f"layers.{{layer}}.{template}", layout, kinds, is_written=False)


SGLANG = Dialect(
    name="sglang",
    title="SGLang 0.5.23",
    wrappers=("", "base_model.model."),
    roots=("language_model.", "model.language_model.", "model.llm.", "model."),
    rows=(
        *ATTENTION_ROWS,
        Row("layers.{layer}.mlp.gate_up_proj", Layout.GATE_UP, DENSE_GATE_UP),
        DENSE_DOWN_ROW,
        *STACKED_EXPERT_ROWS,
        *SHARED_EXPERT_ROWS,
        *(replace(row, layout=Layout.STACK) for row in SHARED_EXPERT_ROWS),
        HEAD_ROW,
        _read("attn.qkvr", Layout.QKVR, *_QKVR),
        _read("mlp.gate_proj", Layout.MATRIX, SiteKind.DENSE_GATE),
        _read("mlp.up_proj", Layout.MATRIX, SiteKind.DENSE_UP),
        _read("mlp.w1", Layout.MATRIX, SiteKind.DENSE_GATE),
        _read("mlp.w3", Layout.MATRIX, SiteKind.DENSE_UP),
        _read("mlp.w2", Layout.MATRIX, SiteKind.DENSE_DOWN),
        *NUMBERED_PROJECTION_ROWS,
        *NUMBERED_W_ROWS,
        *STACKED_PROJECTION_ROWS,
        _read("mlp.experts.gate_up_proj", Layout.STACK_GATE_UP, *_ROUTED_GATE_UP),
        *read_head_rows("lm_head", "model.lm_head", "unembed_tokens", "model.unembed_tokens"),
    ),
    honours_patterns=False,
)
