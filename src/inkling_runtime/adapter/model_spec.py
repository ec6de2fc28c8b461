"""What a base model's config.json says: sizes, layer kinds, and every site that LoRA can adapt.

Not a model and not a checkpoint: only numbers. The trap is `intermediate_size`: in the raw
(Tinker) spelling, recognised by `dense_intermediate_size`, it is the expert width; in the
transformers spelling it is the dense width and the expert width is `moe_intermediate_size`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inkling_runtime.adapter.json_file import read_json_object
from inkling_runtime.adapter.sites import HEAD_SITE, Site, SiteKind, SiteShape
from inkling_runtime.errors import InklingError

MULTIMODAL_TYPES = ("inkling_mm_model",)
TEXT_TYPES = ("inkling_model", "inkling_text")
_KNOWN_BUT_UNSUPPORTED = ("inkling2", "inkling2_text", "inkling2_loop")


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One layer: its attention (sliding window or global) and its MLP (dense or experts)."""

    index: int
    is_sliding: bool
    is_dense: bool
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rel_extent: int
    """How far back the relative position bias reaches, in tokens."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """An Inkling model's sizes. Widths in elements, layers in order."""

    model_type: str
    architectures: tuple[str, ...]
    is_multimodal: bool
    hidden_size: int
    layers: tuple[LayerSpec, ...]
    d_rel: int
    sliding_window: int
    dense_width: int
    expert_width: int
    num_experts: int
    num_shared_experts: int
    num_experts_per_token: int
    route_scale: float
    vocab_size: int
    """Rows of the embedding and the head, padding included."""
    unpadded_vocab_size: int
    """Ids at or above it must never be sampled."""
    mup_multiplier: float
    """The head sees the hidden state divided by it."""
    rms_norm_eps: float
    log_scaling_floor: int | None
    log_scaling_alpha: float
    conv_kernel_size: int
    max_positions: int
    config: dict[str, Any] = field(hash=False)
    """The text part of config.json as read, for what only few need."""

    @property
    def num_layers(self) -> int:
        """Number of layers of the trunk (draft layers not counted)."""
        return len(self.layers)

    def sites(self) -> dict[Site, SiteShape]:
        """Return every site that LoRA can adapt, with its widths, in layer order."""
        sites: dict[Site, SiteShape] = {}
        for layer in self.layers:
            for kind, shape in self._attention_sites(layer) + self._mlp_sites(layer):
                sites[Site(layer.index, kind)] = shape
        sites[HEAD_SITE] = SiteShape(self.hidden_size, self.unpadded_vocab_size)
        return sites

    def _attention_sites(self, layer: LayerSpec) -> list[tuple[SiteKind, SiteShape]]:
        hidden, query = self.hidden_size, layer.num_heads * layer.head_dim
        key = layer.num_kv_heads * layer.head_dim
        return [
            (SiteKind.Q, SiteShape(hidden, query)),
            (SiteKind.K, SiteShape(hidden, key)),
            (SiteKind.V, SiteShape(hidden, key)),
            (SiteKind.R, SiteShape(hidden, layer.num_heads * self.d_rel)),
            (SiteKind.O, SiteShape(query, hidden)),
        ]

    def _mlp_sites(self, layer: LayerSpec) -> list[tuple[SiteKind, SiteShape]]:
        hidden = self.hidden_size
        if layer.is_dense:
            return _gated_sites("DENSE", hidden, self.dense_width, 0)
        return _gated_sites("ROUTED", hidden, self.expert_width, self.num_experts) + _gated_sites(
            "SHARED", hidden, self.expert_width, self.num_shared_experts
        )


def _gated_sites(
    group: str, hidden: int, width: int, experts: int
) -> list[tuple[SiteKind, SiteShape]]:
    return [
        (SiteKind[f"{group}_GATE"], SiteShape(hidden, width, experts)),
        (SiteKind[f"{group}_UP"], SiteShape(hidden, width, experts)),
        (SiteKind[f"{group}_DOWN"], SiteShape(width, hidden, experts)),
    ]


def read_model_spec(path: Path) -> ModelSpec:
    """Return the spec of a model folder or of a config.json.

    Raises:
        InklingError: nothing is there, it is not JSON, or it is not a supported Inkling model.
    """
    try:
        if path.is_dir():
            path = path / "config.json"
    except OSError as error:
        raise InklingError(f"`{path}` cannot be read: {error.strerror or error}") from error
    return parse_model_spec(read_json_object(path), str(path))


def parse_model_spec(config: dict[str, Any], where: str = "config.json") -> ModelSpec:
    """Return the spec that a config object describes, in the raw or the transformers spelling.

    Raises:
        InklingError: not a supported model type, or a size is missing, of a wrong type or sign.
    """
    model_type = config.get("model_type")
    if model_type in _KNOWN_BUT_UNSUPPORTED:
        raise InklingError(
            f"`{where}` describes a `{model_type}` model, which is not supported yet",
            "supported are the first-generation models Inkling and Inkling-Small",
        )
    if model_type not in MULTIMODAL_TYPES + TEXT_TYPES:
        raise InklingError(
            f"`{where}` has the model_type `{model_type}`, expected one of "
            + ", ".join(f"`{name}`" for name in MULTIMODAL_TYPES + TEXT_TYPES)
        )
    is_multimodal = model_type in MULTIMODAL_TYPES
    text = config.get("text_config") if is_multimodal else config
    if not isinstance(text, dict):
        raise InklingError(f"`{where}` has no `text_config` object")
    return _TextConfig(text, where).spec(str(model_type), architectures_of(config), is_multimodal)


def architectures_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the architectures that a config of any model lists; none if it has no list."""
    names = config.get("architectures")
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


_MAX_LAYERS = 10_000
"""Every layer is listed; a number above this is not a model."""


class _TextConfig:
    """Typed access to the text part of a config."""

    def __init__(self, values: dict[str, Any], where: str) -> None:
        self.values = values
        self.where = where

    def spec(self, model_type: str, architectures: tuple[str, ...], mm: bool) -> ModelSpec:
        hidden, num_layers = self.size("hidden_size"), self.size("num_hidden_layers")
        if num_layers > _MAX_LAYERS:
            raise InklingError(
                f"`{self.where}` has num_hidden_layers {num_layers}, expected at most {_MAX_LAYERS}"
            )
        dense_width, expert_width = self._widths()
        vocab_size = self.size("vocab_size")
        floor = self.values.get("log_scaling_n_floor")
        return ModelSpec(
            model_type=model_type,
            architectures=architectures,
            is_multimodal=mm,
            hidden_size=hidden,
            layers=self._layers(num_layers, hidden),
            d_rel=self.size("d_rel", 16),
            sliding_window=self.size("sliding_window_size", 512),
            dense_width=dense_width,
            expert_width=expert_width,
            num_experts=self.size("n_routed_experts", 256),
            num_shared_experts=self.size("n_shared_experts", 2),
            num_experts_per_token=self.size("num_experts_per_tok", 6),
            route_scale=self.number("route_scale", 8.0),
            vocab_size=vocab_size,
            unpadded_vocab_size=min(self.size("unpadded_vocab_size", vocab_size), vocab_size),
            mup_multiplier=self.number("logits_mup_width_multiplier", 24.0),
            rms_norm_eps=self.number("rms_norm_eps", 1e-6),
            log_scaling_floor=None if floor is None else self.size("log_scaling_n_floor"),
            log_scaling_alpha=self.number("log_scaling_alpha", 0.1),
            conv_kernel_size=self.size("sconv_kernel_size", self.size("conv_kernel_size", 4)),
            max_positions=self.size(
                "model_max_length", self.size("max_position_embeddings", 131072)
            ),
            config=self.values,
        )

    def size(self, key: str, default: int | None = None) -> int:
        """Return a positive whole number; null counts as absent."""
        value = self.values.get(key)
        if value is None:
            if default is None:
                raise InklingError(f"`{self.where}` has no `{key}`")
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise InklingError(f"`{self.where}` has {key} {value!r}, expected a positive integer")
        return value

    def number(self, key: str, default: float) -> float:
        """Return a positive number; null counts as absent."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e300:
            raise InklingError(f"`{self.where}` has {key} {value!r}, expected a positive number")
        return float(value)

    def _widths(self) -> tuple[int, int]:
        """Return the dense width and the expert width."""
        if self.values.get("dense_intermediate_size") is not None:
            return self.size("dense_intermediate_size"), self.size("intermediate_size")
        dense = self.size("intermediate_size")
        return dense, self.size("moe_intermediate_size", dense)

    def _layers(self, num_layers: int, hidden: int) -> tuple[LayerSpec, ...]:
        heads = self.size("num_attention_heads")
        kv_heads = self.size("num_key_value_heads", heads)
        head_dim = self.size("head_dim", max(hidden // heads, 1))
        window = self.size("sliding_window_size", 512)
        global_ = (heads, kv_heads, head_dim, self.size("rel_extent", 1024))
        sliding = (
            self.size("swa_num_attention_heads", heads),
            self.size("swa_num_key_value_heads", kv_heads),
            self.size("swa_head_dim", head_dim),
            window,
        )
        local, dense = self._sliding_layers(num_layers), self._dense_layers(num_layers)
        return tuple(
            LayerSpec(i, i in local, i in dense, *(sliding if i in local else global_))
            for i in range(num_layers)
        )

    def _sliding_layers(self, num_layers: int) -> set[int]:
        kinds = self._kinds("layer_types", num_layers, ("hybrid", "hybrid_sliding"))
        if kinds is not None:
            return {i for i, kind in enumerate(kinds) if kind == "hybrid_sliding"}
        local = self.values.get("local_layer_ids")
        if local is None:
            return {i for i in range(num_layers) if (i + 1) % 6}
        if not isinstance(local, list) or not all(type(i) is int for i in local):
            raise InklingError(f"`{self.where}` has local_layer_ids {local!r}, expected layers")
        return set(local)

    def _dense_layers(self, num_layers: int) -> set[int]:
        kinds = self._kinds("mlp_layer_types", num_layers, ("dense", "sparse"))
        if kinds is not None:
            return {i for i, kind in enumerate(kinds) if kind == "dense"}
        count = self.values.get("dense_mlp_idx")
        if count is None:
            return set()
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise InklingError(f"`{self.where}` has dense_mlp_idx {count!r}, expected a count")
        return set(range(min(count, num_layers)))

    def _kinds(self, key: str, num_layers: int, known: tuple[str, str]) -> list[str] | None:
        kinds = self.values.get(key)
        if kinds is None:
            return None
        if (
            not isinstance(kinds, list)
            or len(kinds) != num_layers
            or any(kind not in known for kind in kinds)
        ):
            raise InklingError(
                f"`{self.where}` has a `{key}` that is not {num_layers} times "
                f"`{known[0]}` or `{known[1]}`"
            )
        return kinds
