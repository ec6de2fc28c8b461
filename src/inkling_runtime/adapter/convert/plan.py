"""The plan of a conversion: which output tensor comes from which bytes, and what that changes.

Pure but for the questions about contents; nothing is written. `--dry-run` shows this very object
and `write.write_conversion` executes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
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
from inkling_runtime.adapter.convert.options import Options, apply_options, describe_options
from inkling_runtime.adapter.convert.prepare import HEAD_ROWS, Context, prepare
from inkling_runtime.adapter.convert.shards import plan_shards
from inkling_runtime.adapter.coverage import require_fit
from inkling_runtime.adapter.dialects import STAMP
from inkling_runtime.adapter.dialects.dialect import Dialect
from inkling_runtime.adapter.layouts import Layout, encode
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.moves import Array
from inkling_runtime.adapter.outputs import Output
from inkling_runtime.adapter.safetensors_file import TensorSpec, sort_for_file
from inkling_runtime.adapter.site_pairs import Contents, SitePairs, gather_pairs
from inkling_runtime.adapter.sites import HEAD_SITE, Group, Site
from inkling_runtime.errors import InklingError

DEFAULT = Options()


@dataclass(frozen=True, slots=True)
class Conversion:
    """A planned conversion. Outputs are in file order."""

    source: Adapter
    """Whose dialect, config and metadata the result continues; the first of several."""
    dialect: Dialect
    outputs: tuple[Output, ...]
    config: dict[str, Any]
    metadata: dict[str, str]
    changes: tuple[str, ...]
    """What a user should know before it runs: repairs, changed ranks, size, rounding."""
    pairs: SitePairs
    """The factors of each site that were laid out, before the options."""
    spec: ModelSpec | None = None
    options: Options = DEFAULT

    @property
    def nbytes(self) -> int:
        """Bytes of all output tensors."""
        return sum(output.spec.nbytes for output in self.outputs)

    @property
    def shards(self) -> tuple[tuple[Output, ...], ...]:
        """The outputs of each file, in order."""
        if self.options.shard_size is None:
            return (self.outputs,)
        dealt = plan_shards([output.spec for output in self.outputs], self.options.shard_size)
        remaining = iter(self.outputs)
        return tuple(tuple(islice(remaining, len(shard))) for shard in dealt)


def plan_conversion(
    adapter: Adapter,
    dialect: Dialect,
    spec: ModelSpec | None,
    contents: Contents,
    options: Options = DEFAULT,
) -> Conversion:
    """Return the plan that rewrites an adapter in a dialect with every ΔW unchanged.

    Raises:
        InklingError: a tensor is not understood, the adapter does not fit the base model, its
            config asks for more than s·B·A, or the target needs sizes that only the model tells.
    """
    pairs = understood_pairs(adapter, spec, contents, "converted")
    return lay_out(adapter, pairs, dialect, spec, contents, options)


def understood_pairs(
    adapter: Adapter, spec: ModelSpec | None, contents: Contents, done: str
) -> SitePairs:
    """Return the factors of an adapter that is to be `done`, all of them understood.

    Raises:
        InklingError: as `plan_conversion`.
    """
    require_understood(adapter)
    require_plain_lora(adapter, done)
    pairs = gather_pairs(adapter, spec, contents)
    if spec is not None:
        require_fit(adapter.path, pairs, spec)
    return pairs


def lay_out(
    origin: Adapter,
    pairs: SitePairs,
    dialect: Dialect,
    spec: ModelSpec | None,
    contents: Contents,
    options: Options = DEFAULT,
    notes: Sequence[str] = (),
) -> Conversion:
    """Return the plan of an adapter with these pairs in a dialect.

    Args:
        origin: whose config and metadata the result continues.
        pairs: the factors of each site.
        dialect: the target.
        spec: the base model, if it is known.
        contents: answers about the bytes.
        options: what is asked for beyond the dialect.
        notes: what a user should know of what was done to the pairs before.

    Raises:
        InklingError: the target needs sizes that only the model tells, or cannot hold this.
    """
    target_pairs = apply_options(pairs, options)
    context = Context(spec, contents, dict(origin.file.metadata), options.force)
    added = prepare(dialect.name, target_pairs, context)
    modules = target_modules(target_pairs, dialect, contents)
    root = dialect.written_root(is_text_model=spec is not None and not spec.is_multimodal)
    names = [dialect.format(m.row, m.layer, m.expert, root) for m in modules]
    outputs = _outputs(modules, names, dialect)
    written = _config_modules(modules, names, dialect)
    config = fit_config(
        origin.config,
        dialect,
        written,
        spec,
        is_folded=options.fold_scaling,
        dropped=options.dropped & {site.kind.group for site in pairs},
    )
    described = [*describe_options(pairs, options), *notes]
    conversion = Conversion(
        origin,
        dialect,
        outputs,
        config,
        _metadata(origin, dialect, added),
        (*described, *_changes(origin, dialect, options, spec, pairs, modules, outputs)),
        pairs,
        spec,
        options,
    )
    _require_readable(conversion)
    return conversion


def _require_readable(conversion: Conversion) -> None:
    """Require that the consumer reads as many files as there are to be."""
    count = len(conversion.shards)
    if count > 1 and not conversion.dialect.reads_shards:
        raise InklingError(
            f"shards of {conversion.options.shard_size:,} bytes make {count} files, "
            f"{conversion.dialect.title} reads one file alone",
            "leave `--shard-size` out; SGLang and this tool read several files",
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
    options: Options,
    spec: ModelSpec | None,
    pairs: SitePairs,
    modules: list[TargetModule],
    outputs: tuple[Output, ...],
) -> tuple[str, ...]:
    """Return what the conversion repairs and what it costs, in sentences."""
    changes = list(_repairs(adapter, dialect, pairs, modules))
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
    folded = sum(_is_folded(module, pairs) for module in modules)
    if folded and not options.fold_scaling:
        changes.append(
            f"scaling folded into {folded} lora_B tensors and rounded in their dtype, "
            f"where {dialect.title} takes one scaling for several of the source's"
        )
    if adapter.base_copies:
        changes.append(f"base weights beside the factors, left out: {len(adapter.base_copies)}")
    return tuple(changes)


def _is_folded(module: TargetModule, pairs: SitePairs) -> bool:
    """Return whether the target gives a module another scaling than one of its sites has."""
    sites = (Site(module.layer, kind) for kind in module.row.kinds)
    before = {pairs[site].scaling for site in sites if site in pairs}
    return bool(before - {module.scaling, 0.0})


def _repairs(
    adapter: Adapter, dialect: Dialect, pairs: SitePairs, modules: list[TargetModule]
) -> list[str]:
    found = []
    shared = sum(site.kind.group is Group.SHARED for site in pairs)
    if shared and (adapter.dialect.name == "vllm") != (dialect.name == "vllm"):
        to_vllm = dialect.name == "vllm"
        name = "`sink_experts`, the name that vLLM applies" if to_vllm else "`shared_experts`"
        found.append(f"{shared} shared-expert modules get their name in the target: {name}")
    was_interleaved = any(module.parsed.row.layout in _INTERLEAVED for module in adapter.modules)
    is_interleaved = any(module.row.layout in _INTERLEAVED for module in modules)
    if is_interleaved and not was_interleaved:
        found.append("rows of the dense gate_up lora_B interleaved as vLLM's base weights are")
    elif was_interleaved and not is_interleaved:
        found.append("rows of gate_up lora_B that alternate are put back as [gate; up]")
    return found


_INTERLEAVED = (Layout.GATE_UP_INTERLEAVED, Layout.STACK_GATE_UP_INTERLEAVED)


def _rank_changes(pairs: SitePairs, modules: list[TargetModule]) -> list[str]:
    """Return a sentence for each group whose rank grows or shrinks."""
    changes: dict[tuple[str, int, int], int] = {}
    for module in modules:
        sites = (Site(module.layer, kind) for kind in module.row.kinds)
        before = {pairs[site].rank for site in sites if site in pairs}
        if before and module.rank not in before:
            key = (module.row.kinds[0].group.value, max(before), module.rank)
            changes[key] = changes.get(key, 0) + 1
    return [
        f"rank {before} → {after} in {count} {group} module{'s' * (count != 1)}"
        for (group, before, after), count in sorted(changes.items())
    ]
