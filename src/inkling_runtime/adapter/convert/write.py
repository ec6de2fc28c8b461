"""Write a planned conversion: the target folder is absent or whole, whatever happens.

Everything goes into a sibling folder, is proven there, flushed and renamed. Beside the adapter
lies the record of what it was made of (`provenance.record`). What is written where is decided
elsewhere.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from inkling_runtime.adapter.adapter_weights import WEIGHTS_INDEX_NAME
from inkling_runtime.adapter.convert.place import require_place
from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.convert.shards import shard_index, shard_names
from inkling_runtime.adapter.json_file import format_json
from inkling_runtime.adapter.lora_config import CONFIG_NAME
from inkling_runtime.adapter.new_folder import new_folder
from inkling_runtime.adapter.open_files import require_unchanged
from inkling_runtime.adapter.provenance.build import build_record, reads_to_hash
from inkling_runtime.adapter.provenance.digests import BackgroundDigests
from inkling_runtime.adapter.provenance.prove import bytes_to_prove, prove
from inkling_runtime.adapter.provenance.proven import Account, Action, Proof, Verification
from inkling_runtime.adapter.provenance.record import RECORD_NAME, format_record
from inkling_runtime.adapter.tensor_writer import Progress, write_tensors


def write_conversion(
    conversion: Conversion,
    out: Path,
    *,
    overwrite: bool = False,
    progress: Progress = lambda nbytes: None,
    account: Account | None = None,
    verification: Verification = Verification.COMPUTED,
    proof_progress: Progress = lambda nbytes: None,
    last_check: Callable[[Path], None] = lambda folder: None,
) -> Proof:
    """Write the adapter folder that a plan describes and return what was proven of it.

    Args:
        conversion: the plan.
        out: the folder to write.
        overwrite: whether it may be replaced.
        progress: is told the bytes that are written, `conversion.nbytes` in all.
        account: what the plan does to which adapters; None: it converts `conversion.source`.
        verification: what to prove before the folder gets its name.
        proof_progress: is told the bytes that are proven, `bytes_to_prove` in all.
        last_check: is given the folder before it gets its name, and may raise.

    Raises:
        InklingError: `out` exists and may not be overwritten, is a source itself, its parent
            does not exist, the disk is full, a source changed since it was planned, or the
            result is not proven. Nothing is left behind.
    """
    account = account or Account(Action.CONVERT, (conversion.source,))
    require_place([source.path for source in account.sources], out, overwrite)
    with new_folder(out, overwrite, conversion.nbytes) as folder:
        _write_text(folder / CONFIG_NAME, [format_json(conversion.config)])
        with BackgroundDigests(reads_to_hash(conversion.outputs)) as of_sources:
            digests = _write_weights(conversion, folder, progress)
            source_digests = of_sources.wait()
        proof = prove(conversion, account, folder, digests, verification, proof_progress)
        last_check(folder)
        for source in account.sources:
            require_unchanged(source.file.files)
        record = build_record(conversion, account, folder, digests, source_digests, proof)
        _write_text(folder / RECORD_NAME, (f"{line}\n" for line in format_record(record)))
    return proof


def _write_weights(conversion: Conversion, folder: Path, progress: Progress) -> dict[str, str]:
    """Write all files of weights, and their index where there are several."""
    digests: dict[str, str] = {}
    names = shard_names(len(conversion.shards))
    for name, outputs in zip(names, conversion.shards, strict=True):
        digests |= write_tensors(folder / name, outputs, conversion.metadata, progress)
    if len(names) > 1:
        specs = [tuple(output.spec for output in shard) for shard in conversion.shards]
        _write_text(folder / WEIGHTS_INDEX_NAME, [format_json(shard_index(specs))])
    return digests


def work_of(conversion: Conversion, verification: Verification) -> int:
    """Return the bytes that are written and then proven, for one bar of progress."""
    return conversion.nbytes + bytes_to_prove(conversion, verification)


def _write_text(path: Path, parts: Iterable[str]) -> None:
    """Write a text and flush it to the disk."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())
