"""What PEFT writes for transformers' Inkling.

Expert weights are parameters, not modules, so PEFT nests one wrapper per targeted parameter on
the module that holds them: the parameter registered first is the innermost, `base_layer` once or
twice on disk. Which parameter a name means is therefore decided by `target_parameters`, never by
the name alone. In the table each parameter has its own name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from inkling_runtime.adapter.dialects.dialect import Dialect, Row
from inkling_runtime.adapter.layouts import Layout
from inkling_runtime.adapter.lora_config import LoraConfig
from inkling_runtime.adapter.sites import SiteKind

WRAPPER = "base_model.model."
TEXT_ROOT = "model."
MULTIMODAL_ROOT = "model.language_model."

REGISTERED = {
    ".mlp.experts": ("gate_up_proj", "down_proj"),
    ".mlp.shared_experts": ("gate_proj", "up_proj", "down_proj"),
}
"""Parameters of each module that holds experts, in the order of their registration."""

_NESTED = ".base_layer"


def resolve(modules: Iterable[str], config: LoraConfig) -> dict[str, str]:
    """Return table names, the parameter's own name in place of the chain of `base_layer`.

    A name whose parameter cannot be told stays as it is, and so is not understood.
    """
    chains: dict[str, dict[int, str]] = {}
    names: dict[str, str] = {}
    for module in modules:
        holder, depth = module, 0
        while holder.endswith(_NESTED):
            holder, depth = holder.removesuffix(_NESTED), depth + 1
        if holder.endswith(tuple(REGISTERED)):
            chains.setdefault(holder, {})[depth] = module
        names[module] = module
    for holder, by_depth in chains.items():
        parameters = _parameters_of(holder, config, max(by_depth) + 1)
        for depth, module in by_depth.items():
            if depth < len(parameters):
                names[module] = f"{holder}.{parameters[len(parameters) - 1 - depth]}"
    return names


def _parameters_of(holder: str, config: LoraConfig, levels: int) -> tuple[str, ...]:
    """Return the targeted parameters of a module, innermost first."""
    registered = next(names for end, names in REGISTERED.items() if holder.endswith(end))
    path = holder.removeprefix(WRAPPER)
    targeted = tuple(
        name
        for name in registered
        if any(
            f"{path}.{name}" == t or f".{path}.{name}".endswith(f".{t}")
            for t in config.target_parameters
        )
    )
    if len(targeted) >= levels:
        return targeted
    return registered if not targeted and levels == len(registered) else ()


def spell(modules: Iterable[str]) -> dict[str, str]:
    """Return on-disk names: parameters that lie on one module nest in their order."""
    names = {module: module for module in modules}
    chains: dict[str, set[str]] = {}
    for module in names:
        holder, _, parameter = module.rpartition(".")
        if holder.endswith(tuple(REGISTERED)):
            chains.setdefault(holder, set()).add(parameter)
    for holder, parameters in chains.items():
        registered = next(names for end, names in REGISTERED.items() if holder.endswith(end))
        present = [name for name in registered if name in parameters]
        for index, name in enumerate(present):
            names[f"{holder}.{name}"] = holder + _NESTED * (len(present) - 1 - index)
    return names


PEFT = Dialect(
    name="peft",
    title="PEFT on transformers",
    wrappers=(WRAPPER, ""),
    roots=(MULTIMODAL_ROOT, TEXT_ROOT),
    rows=(
        Row("layers.{layer}.self_attn.q_proj", Layout.MATRIX, (SiteKind.Q,)),
        Row("layers.{layer}.self_attn.k_proj", Layout.MATRIX, (SiteKind.K,)),
        Row("layers.{layer}.self_attn.v_proj", Layout.MATRIX, (SiteKind.V,)),
        Row("layers.{layer}.self_attn.r_proj", Layout.MATRIX, (SiteKind.R,)),
        Row("layers.{layer}.self_attn.o_proj", Layout.MATRIX, (SiteKind.O,)),
        Row("layers.{layer}.mlp.gate_proj", Layout.MATRIX, (SiteKind.DENSE_GATE,)),
        Row("layers.{layer}.mlp.up_proj", Layout.MATRIX, (SiteKind.DENSE_UP,)),
        Row("layers.{layer}.mlp.down_proj", Layout.MATRIX, (SiteKind.DENSE_DOWN,)),
        Row(
            "layers.{layer}.mlp.experts.gate_up_proj",
            Layout.PACKED_GATE_UP,
            (SiteKind.ROUTED_GATE, SiteKind.ROUTED_UP),
        ),
        Row("layers.{layer}.mlp.experts.down_proj", Layout.PACKED, (SiteKind.ROUTED_DOWN,)),
        Row("layers.{layer}.mlp.shared_experts.gate_proj", Layout.PACKED, (SiteKind.SHARED_GATE,)),
        Row("layers.{layer}.mlp.shared_experts.up_proj", Layout.PACKED, (SiteKind.SHARED_UP,)),
        Row("layers.{layer}.mlp.shared_experts.down_proj", Layout.PACKED, (SiteKind.SHARED_DOWN,)),
        Row("lm_head", Layout.MATRIX, (SiteKind.HEAD,)),
    ),
    text_root=TEXT_ROOT,
    resolve=resolve,
    spell=spell,
    reads_shards=False,
)


def _packed_as(name: str, title: str, layouts: Mapping[Layout, Layout]) -> Dialect:
    """Return PEFT's names with another meaning of packed factors, only read."""
    rows = [replace(row, layout=layouts.get(row.layout, row.layout)) for row in PEFT.rows]
    return replace(PEFT, name=name, title=title, rows=tuple(rows), instead=PEFT.name)


PEFT_018 = _packed_as(
    "peft-0.18",
    "PEFT before 0.19.1 on transformers",
    {
        Layout.PACKED: Layout.PACKED_SWAPPED,
        Layout.PACKED_GATE_UP: Layout.PACKED_GATE_UP_SWAPPED,
    },
)
"""The same names before PEFT exchanged in and out of 3-D parameters. Nothing tells the two apart
where a parameter is square."""

PEFT_UNSLOTH = _packed_as(
    "peft-unsloth",
    "Unsloth on transformers",
    {
        Layout.PACKED: Layout.PACKED_BLOCKS,
        Layout.PACKED_GATE_UP: Layout.PACKED_GATE_UP_BLOCKS,
    },
)
"""The same names with lora_B packed expert by expert. Nothing in the shapes tells."""
