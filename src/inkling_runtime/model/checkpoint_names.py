"""The tensor names of both checkpoint layouts: one table per layout, to be read side by side.

Raw is what Tinker publishes: gate and up rows alternate (g0, u0, g1, u1 …). The transformers
layout has them apart, or as contiguous halves. Nothing in a file tells the two orders apart but
the names, and a wrong order gives wrong logits without any error.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from inkling_runtime.adapter.model_spec import LayerSpec
from inkling_runtime.errors import InklingError, format_names

DRAFT_LAYERS = "model.mtp."
"""Prefix of the draft layers, in every layout."""


class Move(Enum):
    """How a tensor of a file becomes (part of) a parameter."""

    COPY = "as it is"
    HEAD = "without the rows of padded ids, which a file may have or not"
    ROWS = "rows of a parameter that holds several, from `Source.start` on"
    ALTERNATING = "gate and up rows alternate; the parameter has all gate rows first"
    TAPS = "[C, 1, W] becomes [W, C]"
    BESIDE = "[S, H, F] becomes [H, S·F]"


@dataclass(frozen=True, slots=True)
class Source:
    """Which parameter a tensor belongs to, its shape in the file (`parameters.dimensions`)."""

    parameter: str
    shape: str
    move: Move = Move.COPY
    start: str = "0"


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of one layout. Layer tables hold the names below `<layers>N.`."""

    name: str
    layers: str
    model_names: Mapping[str, Source]
    layer_names: Mapping[str, Source]
    dense_names: Mapping[str, Source]
    sparse_names: Mapping[str, Source]
    ignored: tuple[str, ...]
    """Prefixes of what is not part of the text model."""

    def names_of(self, layer: LayerSpec) -> dict[str, Source]:
        """Return the full names of one layer's tensors."""
        mlp = self.dense_names if layer.is_dense else self.sparse_names
        prefix = f"{self.layers}{layer.index}."
        return {prefix + name: source for name, source in {**self.layer_names, **mlp}.items()}


RAW = Layout(
    name="raw",
    layers="model.llm.layers.",
    model_names={
        "model.llm.embed.weight": Source("embed", "Vp H"),
        "model.llm.embed_norm.weight": Source("embed_norm", "H"),
        "model.llm.norm.weight": Source("norm", "H"),
        "model.llm.unembed.weight": Source("head", "Vp H", Move.HEAD),
    },
    layer_names={
        "attn_norm.weight": Source("attn_norm", "H"),
        "attn.wq_du.weight": Source("attn.wqkvr", "Q H", Move.ROWS, "0"),
        "attn.wk_dv.weight": Source("attn.wqkvr", "K H", Move.ROWS, "Q"),
        "attn.wv_dv.weight": Source("attn.wqkvr", "K H", Move.ROWS, "Q+K"),
        "attn.wr_du.weight": Source("attn.wqkvr", "R H", Move.ROWS, "Q+K+K"),
        "attn.wo_ud.weight": Source("attn.wo", "H Q"),
        "attn.q_norm.weight": Source("attn.q_norm", "d"),
        "attn.k_norm.weight": Source("attn.k_norm", "d"),
        "attn.k_sconv.weight": Source("attn.k_conv", "K 1 W", Move.TAPS),
        "attn.v_sconv.weight": Source("attn.v_conv", "K 1 W", Move.TAPS),
        "attn.rel_logits_proj.proj": Source("attn.profiles", "r X"),
        "attn_sconv.weight": Source("attn_conv", "H 1 W", Move.TAPS),
        "mlp_norm.weight": Source("mlp_norm", "H"),
        "mlp_sconv.weight": Source("mlp_conv", "H 1 W", Move.TAPS),
    },
    dense_names={
        "mlp.w13_dn.weight": Source("mlp.w13", "2*D H", Move.ALTERNATING),
        "mlp.w2_md.weight": Source("mlp.w2", "H D"),
        "mlp.global_scale": Source("mlp.global_scale", "1"),
    },
    sparse_names={
        "mlp.gate.weight": Source("mlp.gate.weight", "E+S H"),
        "mlp.gate.bias": Source("mlp.gate.bias", "E"),
        "mlp.gate.global_scale": Source("mlp.gate.global_scale", "1"),
        "mlp.experts.w13_weight": Source("mlp.experts.w13", "E 2*F H", Move.ALTERNATING),
        "mlp.experts.w2_weight": Source("mlp.experts.w2", "E H F"),
        "mlp.shared_experts.shared_w13_weight": Source(
            "mlp.shared.w13", "S 2*F H", Move.ALTERNATING
        ),
        "mlp.shared_experts.shared_w2_weight": Source("mlp.shared.w2", "S H F", Move.BESIDE),
    },
    ignored=(DRAFT_LAYERS, "model.visual.", "model.audio."),
)


def _transformers(prefix: str, ignored: tuple[str, ...]) -> Layout:
    return Layout(
        name="transformers",
        layers=f"{prefix}layers.",
        model_names={
            f"{prefix}embed_tokens.weight": Source("embed", "Vp H"),
            f"{prefix}embed_tokens.embed_norm.weight": Source("embed_norm", "H"),
            f"{prefix}norm.weight": Source("norm", "H"),
            "lm_head.weight": Source("head", "Vp H", Move.HEAD),
        },
        layer_names={
            "input_layernorm.weight": Source("attn_norm", "H"),
            "self_attn.q_proj.weight": Source("attn.wqkvr", "Q H", Move.ROWS, "0"),
            "self_attn.k_proj.weight": Source("attn.wqkvr", "K H", Move.ROWS, "Q"),
            "self_attn.v_proj.weight": Source("attn.wqkvr", "K H", Move.ROWS, "Q+K"),
            "self_attn.r_proj.weight": Source("attn.wqkvr", "R H", Move.ROWS, "Q+K+K"),
            "self_attn.o_proj.weight": Source("attn.wo", "H Q"),
            "self_attn.q_norm.weight": Source("attn.q_norm", "d"),
            "self_attn.k_norm.weight": Source("attn.k_norm", "d"),
            "self_attn.k_sconv.conv1d.weight": Source("attn.k_conv", "K 1 W", Move.TAPS),
            "self_attn.v_sconv.conv1d.weight": Source("attn.v_conv", "K 1 W", Move.TAPS),
            "self_attn.rel_logits_proj.proj": Source("attn.profiles", "r X"),
            "attn_sconv.conv1d.weight": Source("attn_conv", "H 1 W", Move.TAPS),
            "post_attention_layernorm.weight": Source("mlp_norm", "H"),
            "mlp_sconv.conv1d.weight": Source("mlp_conv", "H 1 W", Move.TAPS),
        },
        dense_names={
            "mlp.gate_proj.weight": Source("mlp.w13", "D H", Move.ROWS, "0"),
            "mlp.up_proj.weight": Source("mlp.w13", "D H", Move.ROWS, "D"),
            "mlp.down_proj.weight": Source("mlp.w2", "H D"),
            "mlp.global_scale": Source("mlp.global_scale", "1"),
        },
        sparse_names={
            "mlp.gate.weight": Source("mlp.gate.weight", "E+S H"),
            "mlp.gate.e_score_correction_bias": Source("mlp.gate.bias", "E"),
            "mlp.gate.global_scale": Source("mlp.gate.global_scale", "1"),
            "mlp.experts.gate_up_proj": Source("mlp.experts.w13", "E 2*F H"),
            "mlp.experts.down_proj": Source("mlp.experts.w2", "E H F"),
            "mlp.shared_experts.gate_proj": Source("mlp.shared.w13", "S F H", Move.ROWS, "0"),
            "mlp.shared_experts.up_proj": Source("mlp.shared.w13", "S F H", Move.ROWS, "F"),
            "mlp.shared_experts.down_proj": Source("mlp.shared.w2", "S H F", Move.BESIDE),
        },
        ignored=ignored,
    )


TRANSFORMERS_TEXT = _transformers("model.", (DRAFT_LAYERS,))
TRANSFORMERS_MULTIMODAL = _transformers(
    "model.language_model.", (DRAFT_LAYERS, "model.vision_tower.", "model.audio_tower.")
)
LAYOUTS = (RAW, TRANSFORMERS_MULTIMODAL, TRANSFORMERS_TEXT)


def find_layout(names: Collection[str], folder: Path) -> Layout:
    """Return the layout whose names the tensors of a folder have.

    Raises:
        InklingError: they have those of none.
    """
    for layout in LAYOUTS:
        if any(name.startswith(layout.layers) for name in names):
            return layout
    raise InklingError(
        f"`{folder}` holds no Inkling text model: no tensor name begins with "
        + " or ".join(f"`{layout.layers}`" for layout in LAYOUTS)
        + (f", there are {format_names(sorted(names))}" if names else "")
    )
