"""The modules and parameters of transformers' Inkling, as PEFT walks over them.

Names and shapes alone, from the base model's config; transformers is not imported. What a
newcomer gets wrong: routed and shared experts, the router and the relative positions are
parameters of their module and no linear layers, so that `target_modules` never wraps them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from inkling_runtime.adapter.dialects.peft import MULTIMODAL_ROOT, TEXT_ROOT
from inkling_runtime.adapter.model_spec import LayerSpec, ModelSpec

Shape = tuple[int, ...] | None
"""Of a tensor; None where the config does not tell it."""

HEAD = "lm_head"
EMBEDDING = "embed_tokens"


class ModuleKind(StrEnum):
    """What PEFT makes of a module that is targeted.

    linear, embedding: it is wrapped. convolution: it is wrapped if the rank allows it. other,
    list: it is refused, and a list cannot be saved whole either.
    """

    LINEAR = "linear"
    EMBEDDING = "embedding"
    CONVOLUTION = "convolution"
    OTHER = "other"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class ModelModule:
    """One module of the model.

    Attributes:
        path: its name, without `base_model.model.`.
        kind: what PEFT makes of it.
        parameters: its own, in the order of their registration.
        buffers: its own that are saved.
        is_certain: whether the model has it for sure; the number of vision layers is not known.
    """

    path: str
    kind: ModuleKind
    parameters: Mapping[str, Shape] = field(default_factory=dict)
    buffers: Mapping[str, Shape] = field(default_factory=dict)
    is_certain: bool = True


@dataclass(frozen=True, slots=True)
class ModelTree:
    """The modules of a model by path, parents first.

    Attributes:
        is_multimodal: whether it is the multimodal model, not the text model.
        modules: all of them.
    """

    is_multimodal: bool
    modules: Mapping[str, ModelModule]

    @property
    def root(self) -> str:
        """What stands in front of `layers.`."""
        return MULTIMODAL_ROOT if self.is_multimodal else TEXT_ROOT

    def below(self, path: str) -> Iterator[tuple[str, Shape]]:
        """Yield name and shape of all that a module saves, its own first."""
        for module in self.modules.values():
            if module.path == path or module.path.startswith(path + "."):
                for name, shape in {**module.parameters, **module.buffers}.items():
                    yield f"{module.path}.{name}", shape


Sizes = tuple[ModelSpec, LayerSpec]
SizeOf = Callable[[ModelSpec, LayerSpec], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    kind: ModuleKind
    parameters: Mapping[str, SizeOf] = field(default_factory=dict)
    buffers: Mapping[str, SizeOf] = field(default_factory=dict)


def _other(name: str, **parameters: SizeOf) -> _Row:
    return _Row(name, ModuleKind.OTHER, parameters)


def _linear(name: str, size: SizeOf) -> _Row:
    return _Row(name, ModuleKind.LINEAR, {"weight": size})


def _convolution(name: str, channels: Callable[[ModelSpec, LayerSpec], int]) -> tuple[_Row, _Row]:
    def size(spec: ModelSpec, layer: LayerSpec) -> tuple[int, ...]:
        return channels(spec, layer), 1, spec.conv_kernel_size

    return _other(name), _Row(f"{name}.conv1d", ModuleKind.CONVOLUTION, {"weight": size})


def _hidden(spec: ModelSpec, layer: LayerSpec) -> int:
    return spec.hidden_size


def _norm(spec: ModelSpec, layer: LayerSpec) -> tuple[int, ...]:
    return (spec.hidden_size,)


def _key_norm(spec: ModelSpec, layer: LayerSpec) -> tuple[int, ...]:
    return (layer.head_dim,)


def _one(spec: ModelSpec, layer: LayerSpec) -> tuple[int, ...]:
    return (1,)


def _query(spec: ModelSpec, layer: LayerSpec) -> int:
    return layer.num_heads * layer.head_dim


def _key(spec: ModelSpec, layer: LayerSpec) -> int:
    return layer.num_kv_heads * layer.head_dim


def _dense(spec: ModelSpec, layer: LayerSpec) -> tuple[int, ...]:
    return spec.dense_width, spec.hidden_size


def _shared(spec: ModelSpec, layer: LayerSpec) -> tuple[int, ...]:
    return spec.num_shared_experts, spec.expert_width, spec.hidden_size


_ATTENTION = (
    _other("self_attn"),
    _linear("self_attn.q_proj", lambda s, n: (_query(s, n), s.hidden_size)),
    _linear("self_attn.k_proj", lambda s, n: (_key(s, n), s.hidden_size)),
    _linear("self_attn.v_proj", lambda s, n: (_key(s, n), s.hidden_size)),
    _linear("self_attn.r_proj", lambda s, n: (n.num_heads * s.d_rel, s.hidden_size)),
    _linear("self_attn.o_proj", lambda s, n: (s.hidden_size, _query(s, n))),
    *_convolution("self_attn.k_sconv", _key),
    *_convolution("self_attn.v_sconv", _key),
    _other("self_attn.q_norm", weight=_key_norm),
    _other("self_attn.k_norm", weight=_key_norm),
    _other("self_attn.rel_logits_proj", proj=lambda s, n: (s.d_rel, n.rel_extent)),
)
_DENSE = (
    _linear("mlp.gate_proj", _dense),
    _linear("mlp.up_proj", _dense),
    _linear("mlp.down_proj", lambda s, n: (s.hidden_size, s.dense_width)),
)
_SPARSE = (
    _Row(
        "mlp.gate",
        ModuleKind.OTHER,
        {
            "weight": lambda s, n: (s.num_experts + s.num_shared_experts, s.hidden_size),
            "global_scale": _one,
        },
        {"e_score_correction_bias": lambda s, n: (s.num_experts,)},
    ),
    _other(
        "mlp.experts",
        gate_up_proj=lambda s, n: (s.num_experts, 2 * s.expert_width, s.hidden_size),
        down_proj=lambda s, n: (s.num_experts, s.hidden_size, s.expert_width),
    ),
    _other("mlp.experts.act_fn"),
    _other(
        "mlp.shared_experts",
        gate_proj=_shared,
        up_proj=_shared,
        down_proj=lambda s, n: (s.num_shared_experts, s.hidden_size, s.expert_width),
    ),
    _other("mlp.shared_experts.act_fn"),
)
_AROUND = (
    _other("input_layernorm", weight=_norm),
    _other("post_attention_layernorm", weight=_norm),
    *_convolution("attn_sconv", _hidden),
    *_convolution("mlp_sconv", _hidden),
)

_TOWERS: tuple[tuple[str, ModuleKind, tuple[str, ...]], ...] = (
    ("audio_tower", ModuleKind.OTHER, ()),
    ("audio_tower.embed_audio_tokens", ModuleKind.OTHER, ()),
    ("audio_tower.embed_audio_tokens.embed_audio_tokens", ModuleKind.EMBEDDING, ("weight",)),
    ("audio_tower.norm", ModuleKind.OTHER, ("weight",)),
    ("vision_tower", ModuleKind.OTHER, ()),
    ("vision_tower.encoder_layers", ModuleKind.LIST, ()),
    *(
        row
        for i in range(4)
        for row in (
            (f"vision_tower.encoder_layers.{i}", ModuleKind.OTHER, ()),
            (f"vision_tower.encoder_layers.{i}.projection", ModuleKind.LINEAR, ("weight",)),
            (f"vision_tower.encoder_layers.{i}.layer_norm", ModuleKind.OTHER, ("weight",)),
        )
        if i < 3 or not row[0].endswith("norm")
    ),
    ("vision_tower.final_norm", ModuleKind.OTHER, ("weight",)),
)


def model_tree(spec: ModelSpec) -> ModelTree:
    """Return the modules of the transformers model that a config describes."""
    rows = (
        (layer.index, [*_ATTENTION, *_mlp_rows(layer.is_dense), *_AROUND], (spec, layer))
        for layer in spec.layers
    )
    return _tree(spec.is_multimodal, rows, spec)


def unknown_tree(layers: Iterable[int], *, is_multimodal: bool) -> ModelTree:
    """Return all modules that such a model may have, without sizes: each layer of both kinds."""
    both = [*_ATTENTION, *_mlp_rows(True), *_SPARSE, *_AROUND]
    return _tree(is_multimodal, ((index, both, None) for index in layers), None)


def _mlp_rows(is_dense: bool) -> list[_Row]:
    if is_dense:
        return [_other("mlp", global_scale=_one), *_DENSE, _other("mlp.act_fn")]
    return [_other("mlp"), *_SPARSE]


def _tree(
    is_multimodal: bool,
    layers: Iterable[tuple[int, list[_Row], Sizes | None]],
    spec: ModelSpec | None,
) -> ModelTree:
    root = MULTIMODAL_ROOT if is_multimodal else TEXT_ROOT
    hidden = None if spec is None else (spec.hidden_size,)
    rows = None if spec is None else (spec.vocab_size, spec.hidden_size)
    modules = [ModelModule("model", ModuleKind.OTHER)]
    if is_multimodal:
        modules.append(ModelModule(root[:-1], ModuleKind.OTHER))
    modules += [
        ModelModule(f"{root}{EMBEDDING}", ModuleKind.EMBEDDING, {"weight": rows}),
        ModelModule(f"{root}{EMBEDDING}.embed_norm", ModuleKind.OTHER, {"weight": hidden}),
        ModelModule(f"{root}layers", ModuleKind.LIST),
    ]
    for index, parts, sizes in layers:
        modules.append(ModelModule(f"{root}layers.{index}", ModuleKind.OTHER))
        modules += [_module(f"{root}layers.{index}.", row, sizes) for row in parts]
    modules.append(ModelModule(f"{root}norm", ModuleKind.OTHER, {"weight": hidden}))
    if is_multimodal:
        modules += [
            ModelModule(
                f"model.{name}", kind, dict.fromkeys(parameters), is_certain="layers." not in name
            )
            for name, kind, parameters in _TOWERS
        ]
    modules.append(ModelModule(HEAD, ModuleKind.LINEAR, {"weight": rows}))
    return ModelTree(is_multimodal, {module.path: module for module in modules})


def _module(prefix: str, row: _Row, sizes: Sizes | None) -> ModelModule:
    def shapes(of: Mapping[str, SizeOf]) -> dict[str, Shape]:
        return {name: None if sizes is None else size(*sizes) for name, size in of.items()}

    return ModelModule(prefix + row.name, row.kind, shapes(row.parameters), shapes(row.buffers))
