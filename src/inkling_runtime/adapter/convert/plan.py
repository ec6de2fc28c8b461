"""The plan of a conversion: which output tensor comes from which bytes, and what that changes.

Pure but for the questions about contents; nothing is written. `--dry-run` shows this very object
and `write.write_conversion` executes it.
"""

from dataclasses import dataclass
from typing import Any

from inkling_runtime.adapter.adapter import (
    A_SUFFIX,
    B_SUFFIX,
    Adapter,
    require_plain_lora,
    require_understood,
)
from inkling_runtime.adapter.convert.config import ConfigModule, fit_config
from inkling_runtime.adapter.convert.modules import TargetModule, target_modules
from inkling_runtime.adapter.convert.prepare import HEAD_ROWS, Context, prepare
from inkling_runtime.adapter.coverage import require_fit
from inkling_runtime.adapter.dialects import STAMP
from inkling_runtime.adapter.dialects.dialect import Dialect
from inkling_runtime.adapter.layouts import encode
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.moves import Array, verbs
from inkling_runtime.adapter.safetensors_file import TensorSpec, sort_for_file
from inkling_runtime.adapter.site_pairs import Contents, SitePairs, gather_pairs
from inkling_runtime.adapter.sites import HEAD_SITE, Group


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor to be written and where its bytes come from."""

    spec: TensorSpec
    array: Array


@dataclass(frozen=True, slots=True)
class Conversion:
    """A planned conversion. Outputs are in file order."""

    source: Adapter
    dialect: Dialect
    outputs: tuple[Output, ...]
    config: dict[str, Any]
    metadata: dict[str, str]
    changes: tuple[str, ...]
    """What a user should know before it runs: repairs, changed ranks, size, rounding."""

    @property
    def nbytes(self) -> int:
        """Bytes of all output tensors."""
        return sum(output.spec.nbytes for output in self.outputs)


def plan_conversion(
    adapter: Adapter,
    dialect: Dialect,
    spec: ModelSpec | None,
    contents: Contents,
    *,
    force: bool = False,
) -> Conversion:
    """Return the plan that rewrites an adapter in a dialect with every ΔW unchanged.

    With `force`, rows of lm_head that the target has no place for are cut even if not zero.

    Raises:
        InklingError: a tensor is not understood, the adapter does not fit the base model, its
            config asks for more than s·B·A, or the target needs sizes that only the model tells.
    """
    require_understood(adapter)
    require_plain_lora(adapter, "converted")
    pairs = gather_pairs(adapter, spec, contents)
    if spec is not None:
        require_fit(adapter.path, pairs, spec)
    target_pairs = dict(pairs)
    context = Context(spec, contents, dict(adapter.file.metadata), force)
    added = prepare(dialect.name, target_pairs, context)
    modules = target_modules(target_pairs, dialect, contents)
    root = dialect.written_root(is_text_model=spec is not None and not spec.is_multimodal)
    names = [dialect.format(m.row, m.layer, m.expert, root) for m in modules]
    outputs = _outputs(modules, names, dialect)
    config = fit_config(adapter.config, dialect, _config_modules(modules, names, dialect), spec)
    return Conversion(
        adapter,
        dialect,
        outputs,
        config,
        _metadata(adapter, dialect, added),
        _changes(adapter, dialect, spec, pairs, modules, outputs),
    )


def _outputs(modules: list[TargetModule], names: list[str], dialect: Dialect) -> tuple[Output, ...]:
    on_disk = dialect.spell(names)
    arrays: dict[str, Array] = {}
    for name, module in zip(names, modules, strict=True):
        experts = max(pair.experts for pair in module.pairs)
        a, b = encode(module.row.layout, module.pairs, experts)
        arrays[on_disk[name] + A_SUFFIX] = a
        arrays[on_disk[name] + B_SUFFIX] = b
    specs = [TensorSpec(name, array.dtype, array.shape) for name, array in arrays.items()]
    return tuple(Output(spec, arrays[spec.name]) for spec in sort_for_file(specs))


def _config_modules(
    modules: list[TargetModule], names: list[str], dialect: Dialect
) -> list[ConfigModule]:
    wrapper = dialect.wrappers[0]
    return [
        ConfigModule(
            name=name.removeprefix(wrapper),
            tail=_tail(module),
            layer=module.layer,
            kinds=module.row.kinds,
            layout=module.row.layout,
            rank=module.rank,
            scaling=module.scaling,
        )
        for name, module in zip(names, modules, strict=True)
    ]


def _tail(module: TargetModule) -> str:
    tail = module.row.template.removeprefix("layers.{layer}.")
    return tail.replace("{expert}", r"\d+")


def _metadata(adapter: Adapter, dialect: Dialect, added: dict[str, str]) -> dict[str, str]:
    """Return the source's metadata, with our own keys as the target needs them."""
    ours = (STAMP, HEAD_ROWS)
    kept = {key: value for key, value in adapter.file.metadata.items() if key not in ours}
    if dialect.name == "tinker":
        return kept
    if HEAD_ROWS in adapter.file.metadata:
        kept[HEAD_ROWS] = adapter.file.metadata[HEAD_ROWS]
    return {"format": "pt"} | added | kept | {STAMP: dialect.name}


def _changes(
    adapter: Adapter,
    dialect: Dialect,
    spec: ModelSpec | None,
    pairs: SitePairs,
    modules: list[TargetModule],
    outputs: tuple[Output, ...],
) -> tuple[str, ...]:
    """Return what the conversion repairs and what it costs, in sentences."""
    changes = list(_repairs(adapter, dialect, pairs))
    if dialect.name == "sglang" and spec is None and HEAD_SITE in pairs:
        rows = pairs[HEAD_SITE].b.shape[0]
        changes.append(
            f"lm_head.lora_B keeps its {rows:,} rows; SGLang refuses more than the unpadded "
            "vocabulary, which only `--model` tells"
        )
    changes += _rank_changes(pairs, modules)
    before = sum(tensor.nbytes for tensor in adapter.factor_tensors())
    after = sum(output.spec.nbytes for output in outputs)
    if after != before:
        changes.append(f"size: {before:,} → {after:,} bytes ({after / before:.2f}×)")
    rounded = [output for output in outputs if "scale" in verbs(output.array)]
    if rounded:
        changes.append(
            f"scaling folded into {len(rounded)} lora_B tensors and rounded in their dtype, "
            f"where {dialect.title} takes one scaling for several of the source's"
        )
    if adapter.base_copies:
        changes.append(f"base weights beside the factors, left out: {len(adapter.base_copies)}")
    return tuple(changes)


def _repairs(adapter: Adapter, dialect: Dialect, pairs: SitePairs) -> list[str]:
    if "vllm" not in (adapter.dialect.name, dialect.name) or adapter.dialect is dialect:
        return []
    groups = [site.kind.group for site in pairs]
    to_vllm = dialect.name == "vllm"
    found = []
    if shared := groups.count(Group.SHARED):
        name = "`sink_experts`, the name that vLLM applies" if to_vllm else "`shared_experts`"
        found.append(f"{shared} shared-expert modules get their name in the target: {name}")
    if Group.DENSE in groups:
        verb = "interleaved as vLLM's base weights are" if to_vllm else "put back as [gate; up]"
        found.append(f"rows of the dense gate_up lora_B {verb}")
    return found


def _rank_changes(pairs: SitePairs, modules: list[TargetModule]) -> list[str]:
    """Return a sentence for each group whose rank grows or shrinks."""
    changes: dict[tuple[str, int, int], int] = {}
    for module in modules:
        before = {
            pair.rank
            for site, pair in pairs.items()
            if site.layer == module.layer and site.kind in module.row.kinds
        }
        if before and module.rank not in before:
            key = (module.row.kinds[0].group.value, max(before), module.rank)
            changes[key] = changes.get(key, 0) + 1
    return [
        f"rank {before} → {after} in {count} {group} module{'s' * (count != 1)}"
        for (group, before, after), count in sorted(changes.items())
    ]
