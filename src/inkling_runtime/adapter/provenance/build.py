"""From a conversion that was written to its record. No work but reading two small files."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from inkling_runtime import __version__
from inkling_runtime.adapter.adapter import Adapter
from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.difference import deciding_part
from inkling_runtime.adapter.lora_config import CONFIG_NAME, read_lora_config
from inkling_runtime.adapter.moves import Read, iter_reads, verbs
from inkling_runtime.adapter.outputs import Output, copied_tensor
from inkling_runtime.adapter.provenance.digests import Place, hash_file
from inkling_runtime.adapter.provenance.proven import Account, Proof
from inkling_runtime.adapter.provenance.record import (
    Record,
    RecordedSource,
    RecordedTensor,
    options_object,
)


def reads_to_hash(outputs: Iterable[Output]) -> tuple[Read, ...]:
    """Return the source tensors whose digests writing does not tell: those not copied whole."""
    reads: dict[Place, Read] = {}
    copied: set[Place] = set()
    for output in outputs:
        reads |= {(read.path, read.tensor.name): read for read in iter_reads(output.array)}
        if (whole := copied_tensor(output.array)) is not None:
            copied.add((whole.path, whole.tensor.name))
    left = [read for place, read in reads.items() if place not in copied]
    return tuple(sorted(left, key=lambda read: (read.path, read.tensor.start)))


def build_record(
    conversion: Conversion,
    account: Account,
    folder: Path,
    digests: Mapping[str, str],
    source_digests: Mapping[Place, str],
    proof: Proof,
) -> Record:
    """Return the record of what was written.

    Args:
        conversion: the plan that was executed.
        account: of what it does.
        folder: what was written.
        digests: of the written tensors.
        source_digests: of `reads_to_hash`.
        proof: what was shown.

    Raises:
        InklingError: a config cannot be read.
    """
    known = dict(source_digests)
    for output in conversion.outputs:
        if (whole := copied_tensor(output.array)) is not None:
            known[whole.path, whole.tensor.name] = digests[output.spec.name]
    numbers = _numbers_of(account.sources)
    return Record(
        action=account.action,
        inkling=__version__,
        dialect=conversion.dialect.name,
        options=options_object(conversion.options) | dict(account.wishes),
        sources=tuple(
            _recorded(adapter, number, numbers, known)
            for number, adapter in enumerate(account.sources)
        ),
        config_sha256=hash_file(folder / CONFIG_NAME),
        effect=deciding_part(read_lora_config(folder)),
        tensors={
            output.spec.name: _recorded_tensor(output, digests[output.spec.name], numbers)
            for output in conversion.outputs
        },
        modules=proof.modules,
    )


def _recorded_tensor(output: Output, sha256: str, numbers: Mapping[Path, int]) -> RecordedTensor:
    spec, reads = output.spec, iter_reads(output.array)
    sources = tuple((numbers[read.path], read.tensor.name) for read in reads)
    return RecordedTensor(sha256, spec.dtype, spec.shape, verbs(output.array), sources)


def _numbers_of(sources: Sequence[Adapter]) -> dict[Path, int]:
    """Return file → number of its adapter; one that is merged with itself is the first of both."""
    numbers: dict[Path, int] = {}
    for number, adapter in enumerate(sources):
        for file in adapter.file.files:
            numbers.setdefault(file.path, number)
    return numbers


def _recorded(
    adapter: Adapter, number: int, numbers: Mapping[Path, int], known: Mapping[Place, str]
) -> RecordedSource:
    return RecordedSource(
        str(adapter.path),
        adapter.dialect.name,
        hash_file(adapter.path / CONFIG_NAME),
        {name: digest for (path, name), digest in known.items() if numbers[path] == number},
    )
