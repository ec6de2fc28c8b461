"""A written adapter held against its record, later and anywhere.

Every tensor's bytes and the config, always. Where the sources are at hand also theirs, and then the
deltas are proven again from the elements, by the code that proved them when they were written.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inkling_runtime.adapter.adapter import Adapter, read_adapter
from inkling_runtime.adapter.adapter_weights import AdapterWeights, read_weights
from inkling_runtime.adapter.difference import ConfigDifference, compare_configs, deciding_part
from inkling_runtime.adapter.in_place.journal import journal_path
from inkling_runtime.adapter.lora_config import (
    CONFIG_NAME,
    beyond_plain_lora,
    parse_lora_config,
    read_lora_config,
)
from inkling_runtime.adapter.model_spec import ModelSpec
from inkling_runtime.adapter.moves import Read
from inkling_runtime.adapter.open_files import OpenFiles
from inkling_runtime.adapter.provenance.check import (
    Change,
    Check,
    DeltaCheck,
    SourceCheck,
    TensorChange,
)
from inkling_runtime.adapter.provenance.deltas import Expectation, pairs_of, prove_delta
from inkling_runtime.adapter.provenance.digests import hash_file, hash_tensors
from inkling_runtime.adapter.provenance.proven import Action, Proven
from inkling_runtime.adapter.provenance.read_record import read_record
from inkling_runtime.adapter.provenance.record import (
    Record,
    RecordedSource,
    RecordedTensor,
    options_of,
)
from inkling_runtime.errors import InklingError, format_count

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """What is looked at: an adapter, its record, and those of its sources that are there."""

    folder: Path
    record: Record
    weights: AdapterWeights
    sources: tuple[Adapter | None, ...]

    @property
    def is_conversion(self) -> bool:
        """Whether the deltas should be those of the one source."""
        return self.record.action is Action.CONVERT

    @property
    def nbytes(self) -> int:
        """The bytes that are read, once for digests; deltas come on top."""
        there = [source for source in self.sources if source is not None]
        return self.weights.file_size + sum(source.file.file_size for source in there)


def plan_check(folder: Path, sources: Sequence[Path]) -> CheckPlan:
    """Return what there is to check in a folder.

    Args:
        folder: that was written.
        sources: the adapters it was made of, in the order of the record; none: the recorded paths,
            as far as there are adapters.

    Raises:
        InklingError: there is no record, or not as many sources as it says; an adapter cannot be
            read.
    """
    record = read_record(folder)
    weights = read_weights(folder)
    if not sources:
        found = tuple(_read_recorded(source) for source in record.sources)
        return CheckPlan(folder, record, weights, found)
    if len(sources) != len(record.sources):
        raise InklingError(
            f"`{folder}` was made of {format_count(len(record.sources), 'adapter')}, "
            f"`--source` is given {format_count(len(sources), 'time')}"
        )
    given = zip(sources, record.sources, strict=True)
    adapters = tuple(read_adapter(path, recorded.dialect) for path, recorded in given)
    return CheckPlan(folder, record, weights, adapters)


def _read_recorded(source: RecordedSource) -> Adapter | None:
    path = Path(source.path)
    if not (path / CONFIG_NAME).is_file():
        return None
    try:
        return read_adapter(path, source.dialect)
    except InklingError:
        return None


def run_check(
    plan: CheckPlan, spec: ModelSpec | None, progress: Progress = lambda nbytes: None
) -> Check:
    """Return what differs from the record.

    Args:
        plan: what to look at.
        spec: the base model, if it is known.
        progress: is told the bytes that are done, `plan.nbytes` in all.

    Raises:
        InklingError: a file cannot be read.
    """
    record = plan.record
    tensors = _compare_tensors(plan.weights, record.tensors, progress)
    config_differs = hash_file(plan.folder / CONFIG_NAME) != record.config_sha256
    config, fault = _compare_config(plan) if config_differs else ((), None)
    sources = tuple(
        _check_source(recorded, adapter, progress)
        for recorded, adapter in zip(record.sources, plan.sources, strict=True)
    )
    deltas, why = _compare_deltas(plan, spec, tensors, fault)
    return Check(
        folder=plan.folder,
        record=record,
        tensors=tensors,
        config_differs=config_differs,
        config_fault=fault,
        config=config,
        sources=sources,
        deltas=deltas,
        not_compared=why,
        in_place=_is_changed_in_place(plan.folder),
    )


def _is_changed_in_place(folder: Path) -> bool:
    return journal_path(folder).exists()


def _compare_tensors(
    weights: AdapterWeights, recorded: Mapping[str, RecordedTensor], progress: Progress
) -> tuple[TensorChange, ...]:
    """Return the tensors that are missing, added, or other than recorded."""
    form = {name: _form(tensor.dtype, tensor.shape) for name, tensor in recorded.items()}
    found = {name: _form(info.dtype, info.shape) for name, info in weights.tensors.items()}
    changes = [
        TensorChange(name, _change_of(name, found, form), found.get(name), form.get(name))
        for name in found.keys() | form.keys()
        if found.get(name) != form.get(name)
    ]
    alike = [name for name in form if found.get(name) == form[name]]
    expected = {name: recorded[name].sha256 for name in alike}
    changes += _compare_bytes(weights, expected, progress)
    return tuple(sorted(changes, key=lambda change: change.name))


def _change_of(name: str, found: Mapping[str, str], expected: Mapping[str, str]) -> Change:
    if name not in found:
        return Change.MISSING
    return Change.CHANGED if name in expected else Change.ADDED


def _form(dtype: str, shape: Iterable[int]) -> str:
    return f"{dtype} {list(shape)}"


def _compare_bytes(
    weights: AdapterWeights, expected: Mapping[str, str], progress: Progress
) -> list[TensorChange]:
    """Return the tensors whose bytes have another SHA-256."""
    reads = [Read(weights.path_of(name), weights.tensors[name]) for name in expected]
    return [
        TensorChange(name, Change.CHANGED, f"SHA-256 {digest}", f"SHA-256 {expected[name]}")
        for (_, name), digest in hash_tensors(reads, progress).items()
        if digest != expected[name]
    ]


def _compare_config(plan: CheckPlan) -> tuple[tuple[ConfigDifference, ...], str | None]:
    """Return the deciding keys that differ; where the config cannot be read, why."""
    try:
        found = read_lora_config(plan.folder)
        before = parse_lora_config(dict(plan.record.effect))
    except InklingError as error:
        return (), error.message
    if beyond := beyond_plain_lora(found):
        return (), f"it has {beyond[0]}, with which the effect is more than s·B·A"
    return compare_configs(before, parse_lora_config(deciding_part(found))), None


def _check_source(
    recorded: RecordedSource, adapter: Adapter | None, progress: Progress
) -> SourceCheck:
    if adapter is None:
        return SourceCheck(recorded.path, is_there=False)
    tensors = adapter.file.tensors
    missing = [
        TensorChange(name, Change.MISSING, None, f"SHA-256 {recorded.tensors[name]}")
        for name in sorted(recorded.tensors.keys() - tensors.keys())
    ]
    expected = {name: sha for name, sha in recorded.tensors.items() if name in tensors}
    changed = _compare_bytes(adapter.file, expected, progress)
    return SourceCheck(
        str(adapter.path),
        is_there=True,
        config_differs=hash_file(adapter.path / CONFIG_NAME) != recorded.config_sha256,
        tensors=tuple(sorted([*missing, *changed], key=lambda change: change.name)),
        in_place=_is_changed_in_place(adapter.path),
    )


def _compare_deltas(
    plan: CheckPlan,
    spec: ModelSpec | None,
    changes: Sequence[TensorChange],
    config_fault: str | None,
) -> tuple[tuple[DeltaCheck, ...], str | None]:
    """Return what is shown of each site beside the source, or why that is not looked at."""
    if not plan.is_conversion:
        return (), f"the deltas of a {_DONE[plan.record.action]} adapter are not those of a source"
    (source,) = plan.sources
    if source is None:
        return (), f"`{plan.record.sources[0].path}` holds no adapter to compare with"
    if config_fault is not None:
        return (), f"`{CONFIG_NAME}`: {config_fault}"
    if any(change.change is not Change.CHANGED for change in changes):
        return (), "tensors are missing or were added"
    try:
        return _prove_deltas(plan, source, spec), None
    except InklingError as error:
        return (), error.message


_DONE = {Action.RESIZE: "resized", Action.MERGE: "merged"}


def _prove_deltas(
    plan: CheckPlan, source: Adapter, spec: ModelSpec | None
) -> tuple[DeltaCheck, ...]:
    record = plan.record
    result = read_adapter(plan.folder, record.dialect)
    expectation = Expectation(
        pairs_of(source, spec), pairs_of(result, spec), options_of(record), spec
    )
    rounded = {
        site
        for module in result.modules
        for site in module.sites
        if any(_is_rounded(record.tensors.get(tensor.name)) for tensor in module.tensors)
    }
    found = []
    with OpenFiles() as files:
        for aligned in expectation.sites():
            may_round = aligned.site in rounded
            if aligned.has_same_widths:
                proven, distance = prove_delta(aligned, expectation, files, may_round=may_round)
                found.append(DeltaCheck(str(aligned.site), proven, distance.relative))
            else:
                found.append(DeltaCheck(str(aligned.site), Proven.NOTHING, None))
    return tuple(found)


def _is_rounded(tensor: RecordedTensor | None) -> bool:
    return tensor is not None and not {"scale", "cast"}.isdisjoint(tensor.moves)
