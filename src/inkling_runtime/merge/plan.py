"""Plan a merge into a base checkpoint.

From headers alone, but for rows of the head that may be cut. `--dry-run` shows this very object
and `write.write_merge` executes it. Every site of every adapter lands in exactly one tensor.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path

from inkling_runtime.adapter.adapter import Adapter, require_plain_lora, require_understood
from inkling_runtime.adapter.arithmetic import Sum
from inkling_runtime.adapter.coverage import require_fit
from inkling_runtime.adapter.model_spec import ModelSpec, read_model_spec
from inkling_runtime.adapter.moves import Array, Read
from inkling_runtime.adapter.outputs import Output
from inkling_runtime.adapter.safetensors_file import SafetensorsFile, TensorInfo, TensorSpec
from inkling_runtime.adapter.shown import shown_text
from inkling_runtime.adapter.site_pairs import HEADERS_ONLY, Contents, gather_pairs
from inkling_runtime.adapter.sites import HEAD_SITE
from inkling_runtime.errors import InklingError, format_count, format_names
from inkling_runtime.merge.base_folder import BaseFolder, read_base_folder
from inkling_runtime.merge.deltas import WIDE, delta_of, fit_head, weigh
from inkling_runtime.merge.merge import Addend, Merge, Shard
from inkling_runtime.merge.targets import Target, plan_targets
from inkling_runtime.model.checkpoint_names import DRAFT_LAYERS, find_layout


def plan_merge(
    model: Path, adapters: Sequence[Adapter], weights: Sequence[float], contents: Contents
) -> Merge:
    """Return the plan that adds adapters to the weights of a base checkpoint.

    Args:
        model: the base model's folder, in the raw or the transformers layout.
        adapters: at least one.
        weights: a factor for the delta of each.
        contents: answers whether rows of the head that the base lacks are zero.

    Raises:
        InklingError: the folder is no such model, or an adapter is not understood, asks for more
            than s·B·A, or does not fit; or a tensor that is adapted is missing or quantised.
    """
    base = read_base_folder(model)
    spec = read_model_spec(model)
    tensors = base.tensors()
    layout = find_layout(tensors, model)
    targets = plan_targets(layout, spec)
    addends = tuple(
        _addend(adapter, weight, spec) for adapter, weight in zip(adapters, weights, strict=True)
    )
    targets = _adapted(targets, addends)
    _require_tensors(targets, tensors, base)
    addends = tuple(_fit_head(addend, targets, tensors, contents) for addend in addends)
    shards = tuple(_shard(file, targets, addends, spec) for file in base.shards)
    return Merge(base, layout, addends, shards, tuple(_notes(base, tensors, addends)))


def _addend(adapter: Adapter, weight: float, spec: ModelSpec) -> Addend:
    if not isfinite(weight) or weight == 0:
        raise InklingError(
            f"the weight of `{adapter.path}` is {weight:g}, expected a number other than 0"
        )
    require_understood(adapter)
    require_plain_lora(adapter, "merged")
    pairs = gather_pairs(adapter, spec, HEADERS_ONLY)
    require_fit(adapter.path, pairs, spec)
    return Addend(adapter, weight, weigh(pairs, weight, spec))


def _adapted(targets: Mapping[str, Target], addends: Sequence[Addend]) -> dict[str, Target]:
    """Return the targets that hold an adapted site.

    Raises:
        ValueError: a site that is adapted lies in no tensor of the layout, or in two.
    """
    sites = {site for addend in addends for site in addend.pairs}
    adapted = {
        name: target for name, target in targets.items() if not sites.isdisjoint(target.sites)
    }
    landed = sorted(site for target in adapted.values() for site in target.sites if site in sites)
    if landed != sorted(sites):
        raise ValueError(f"sites {sorted(sites)} land as {landed}")
    return adapted


def _require_tensors(
    targets: Mapping[str, Target], tensors: Mapping[str, TensorInfo], base: BaseFolder
) -> None:
    """Require that every tensor that gets a delta is there and can be computed with."""
    quantised = [
        name
        for name in targets
        if (tensors[name].dtype not in WIDE if name in tensors else _is_replaced(name, tensors))
    ]
    if quantised:
        raise InklingError(
            f"`{base.path}` holds quantised weights that the adapter changes: "
            f"{format_names(quantised)}",
            "merge into the checkpoint in BF16, and quantise the result",
        )
    missing = [name for name in targets if name not in tensors]
    if missing:
        raise InklingError(
            f"`{base.path}` lacks tensors that the adapter changes: {format_names(missing)}",
            "compare config.json with the files: layers, dense layers and experts must agree",
        )


def _is_replaced(name: str, tensors: Mapping[str, TensorInfo]) -> bool:
    """Return whether numbers of another kind stand where a tensor was expected."""
    parent = name.rpartition(".")[0] + "."
    return any(
        other.startswith(parent) and tensor.dtype not in WIDE for other, tensor in tensors.items()
    )


def _fit_head(
    addend: Addend,
    targets: Mapping[str, Target],
    tensors: Mapping[str, TensorInfo],
    contents: Contents,
) -> Addend:
    for name, target in targets.items():
        if target.sites == (HEAD_SITE,):
            rows = tensors[name].shape[0]
            pairs = fit_head(addend.pairs, rows, contents, str(addend.adapter.path))
            return Addend(addend.adapter, addend.weight, pairs)
    return addend


def _shard(
    file: SafetensorsFile,
    targets: Mapping[str, Target],
    addends: Sequence[Addend],
    spec: ModelSpec,
) -> Shard:
    outputs = []
    for tensor in sorted(file.tensors.values(), key=lambda tensor: (tensor.start, tensor.end)):
        array: Array = (read := Read(file.path, tensor))
        if tensor.name in targets:
            array = _sum(read, targets[tensor.name], addends, spec, file.path.parent)
        outputs.append(Output(TensorSpec(tensor.name, tensor.dtype, tensor.shape), array))
    changed = {name: target for name, target in targets.items() if name in file.tensors}
    return Shard(file, tuple(outputs), changed)


def _sum(
    base: Read, target: Target, addends: Sequence[Addend], spec: ModelSpec, folder: Path
) -> Array:
    """Return a tensor plus the deltas of all adapters that adapt it.

    Raises:
        InklingError: the tensor has another shape than the config says.
    """
    rows, wide = base.shape[-2] if len(base.shape) > 1 else 0, WIDE[base.dtype]
    found = (delta_of(target, addend.pairs, spec, rows, wide) for addend in addends)
    deltas = tuple(delta for delta in found if delta is not None)
    for delta in deltas:
        if delta.shape != base.shape:
            raise InklingError(
                f"`{base.tensor.name}` of `{folder}` has the shape {list(base.shape)}, "
                f"config.json says {list(delta.shape)}"
            )
    return Sum(base, deltas)


def _notes(
    base: BaseFolder, tensors: Mapping[str, TensorInfo], addends: Sequence[Addend]
) -> Iterator[str]:
    drafts = sum(name.startswith(DRAFT_LAYERS) for name in tensors)
    if drafts:
        yield (
            f"`{DRAFT_LAYERS}*`: {format_count(drafts, 'tensor')} of the draft layers stay as they "
            "are, so drafts are those of the base model"
        )
    for addend in addends:
        if copies := len(addend.adapter.base_copies):
            yield f"`{addend.adapter.path}` also holds base weights, left out: {copies}"
    if base.left_out:
        names = format_names([shown_text(str(path)) for path in base.left_out])
        yield f"not copied from `{base.path}`: {names}"
