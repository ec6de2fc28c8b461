"""What vLLM 0.33 applies completely.

Two things differ from the released schema, and vLLM notices neither: shared experts must be named
`sink_experts`, and the rows of the dense gate_up B must be interleaved like the base weights.
Experts are 3-D with `--enable-moe-shared-loras`, which needs a shared outer factor; all others
are stored one by one. Also read: the raw checkpoint's names that vLLM renames itself.
"""

from dataclasses import replace

from inkling_runtime.adapter.dialects.dialect import Dialect, Row
from inkling_runtime.adapter.dialects.experts import NUMBERED_PROJECTION_ROWS, STACKED_EXPERT_ROWS
from inkling_runtime.adapter.dialects.raw import RAW_DENSE_ROWS
from inkling_runtime.adapter.dialects.tinker import (
    ATTENTION_ROWS,
    DENSE_DOWN_ROW,
    DENSE_GATE_UP,
    HEAD_ROW,
    read_head_rows,
)
from inkling_runtime.adapter.layouts import Layout
from inkling_runtime.adapter.sites import SiteKind

VLLM = Dialect(
    name="vllm",
    title="vLLM 0.33",
    wrappers=("", "base_model.model."),
    roots=("language_model.", "model.llm.", "model."),
    rows=(
        *ATTENTION_ROWS,
        Row("layers.{layer}.mlp.gate_up_proj", Layout.GATE_UP_INTERLEAVED, DENSE_GATE_UP),
        DENSE_DOWN_ROW,
        *RAW_DENSE_ROWS,
        *STACKED_EXPERT_ROWS,
        *(replace(row, is_written=True) for row in NUMBERED_PROJECTION_ROWS),
        Row("layers.{layer}.mlp.sink_experts.w1", Layout.FLAT, (SiteKind.SHARED_GATE,)),
        Row("layers.{layer}.mlp.sink_experts.w3", Layout.FLAT, (SiteKind.SHARED_UP,)),
        Row("layers.{layer}.mlp.sink_experts.w2", Layout.FLAT, (SiteKind.SHARED_DOWN,)),
        HEAD_ROW,
        *read_head_rows("lm_head", "model.llm.unembed"),
    ),
    reads_shards=False,
)
