"""The plan of a conversion in place: the new header, the new config and the payload that changes.

Possible where every tensor of the result has the bytes of one tensor of the file, as they are or
in another order. The payload stays where it is; so the order of the tensors is the file's.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inkling_runtime.adapter.adapter_weights import WEIGHTS_NAME
from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.in_place.journal import MAX_PATCH_BYTES
from inkling_runtime.adapter.in_place.room import BLOCK_BYTES
from inkling_runtime.adapter.in_place.weights import OpenWeights, open_for_change, other_way
from inkling_runtime.adapter.json_file import format_json, read_json_object, require_json_size
from inkling_runtime.adapter.moves import Array, iter_reads, verbs
from inkling_runtime.adapter.outputs import Output, copied_tensor
from inkling_runtime.adapter.safetensors_file import (
    TensorInfo,
    TensorSpec,
    format_header,
    read_header,
)
from inkling_runtime.errors import InklingError, format_names


@dataclass(frozen=True, slots=True)
class Patch:
    """A tensor whose bytes change where it lies: which it is and what it becomes."""

    tensor: TensorInfo
    array: Array


@dataclass(frozen=True, slots=True)
class InPlacePlan:
    """What changes in a folder. Headers include their length prefix and padding."""

    folder: Path
    other_way: str
    """What a user can do where the folder cannot be changed."""
    old_header: bytes
    new_header: bytes
    old_config: bytes
    new_config: bytes
    payload_bytes: int
    patches: tuple[Patch, ...]

    @property
    def inserted_bytes(self) -> int:
        """Bytes by which the file grows, because the new header does not fit; 0 if it does."""
        return len(self.new_header) - len(self.old_header)

    @property
    def patched_bytes(self) -> int:
        """Bytes of payload that change where they lie."""
        return sum(patch.tensor.nbytes for patch in self.patches)

    @property
    def is_empty(self) -> bool:
        """Whether the folder is already as it would be."""
        headers, configs = self.old_header == self.new_header, self.old_config == self.new_config
        return headers and configs and not self.patches


def plan_in_place(conversion: Conversion) -> InPlacePlan:
    """Return the plan that makes a conversion where the adapter lies. Changes nothing.

    Raises:
        InklingError: payload would have to move, or the files may not or cannot be changed.
    """
    folder = conversion.source.path
    hint = other_way(folder, conversion.dialect.name)
    if conversion.source.file.path != folder / WEIGHTS_NAME:
        raise InklingError(
            f"`{folder}` holds its tensors in several files, expected one in place", hint
        )
    with open_for_change(folder, hint) as weights:
        sources = _require_possible(conversion, weights.path, hint)
        old_header = weights.read(0, 8 + weights.header_length())
        _require_unchanged(conversion, weights)
        payload_bytes = weights.size() - len(old_header)
        old_config = weights.read_config()
        block_bytes = max(BLOCK_BYTES, os.fstatvfs(weights.descriptor).f_bsize)
    in_file_order = sorted(zip(sources, conversion.outputs, strict=True), key=_start_of)
    specs = [output.spec for _, output in in_file_order]
    patches = [
        Patch(tensor, output.array)
        for tensor, output in in_file_order
        if copied_tensor(output.array) is None
    ]
    plan = InPlacePlan(
        folder,
        hint,
        old_header,
        _fit_header(old_header, specs, conversion.metadata, block_bytes),
        old_config,
        _fit_config(old_config, conversion.config),
        payload_bytes,
        tuple(patches),
    )
    _require_small(plan)
    return plan


def _require_unchanged(conversion: Conversion, weights: OpenWeights) -> None:
    """Require that the folder is still what the conversion was planned from."""
    source = conversion.source
    changed = None
    if read_header(weights.path).tensors != source.file.tensors:
        changed = weights.path
    elif read_json_object(weights.config_path) != source.config.values:
        changed = weights.config_path
    if changed is not None:
        raise InklingError(f"`{changed}` changed while its conversion was planned")


def _start_of(pair: tuple[TensorInfo, Output]) -> int:
    return pair[0].start


def _require_possible(conversion: Conversion, weights: Path, hint: str) -> list[TensorInfo]:
    """Return the one tensor of the file that each output takes the place of."""
    sources, moved = [], []
    taken: set[str] = set()
    for output in conversion.outputs:
        source = _source_of(output, weights)
        if source is None or source.name in taken:
            moved.append(output)
            continue
        taken.add(source.name)
        sources.append(source)
    if moved:
        names = format_names([output.spec.name for output in moved])
        how = sorted({verb for output in moved for verb in verbs(output.array)} - {"copy"})
        why = f" ({', '.join(how)})" if how else ""
        raise InklingError(
            f"{len(moved)} of {len(conversion.outputs)} tensors of the result are not one whole "
            f"tensor of `{weights}`, each of another: {names}{why}",
            hint,
        )
    if left := sorted(conversion.source.file.tensors.keys() - taken):
        raise InklingError(
            f"the result leaves out {format_names(left)} of `{weights}`, and bytes cannot be "
            "taken out in place",
            hint,
        )
    return sources


def _source_of(output: Output, weights: Path) -> TensorInfo | None:
    reads = iter_reads(output.array)
    if len(reads) != 1 or reads[0].path != weights:
        return None
    tensor = reads[0].tensor
    return tensor if tensor.nbytes == output.spec.nbytes else None


def _require_small(plan: InPlacePlan) -> None:
    if plan.patched_bytes > MAX_PATCH_BYTES:
        names = format_names([patch.tensor.name for patch in plan.patches])
        raise InklingError(
            f"{plan.patched_bytes:,} bytes of numbers change ({names}), "
            f"expected at most {MAX_PATCH_BYTES:,} in place",
            plan.other_way,
        )


def _fit_header(
    old: bytes, specs: list[TensorSpec], metadata: dict[str, str], block_bytes: int
) -> bytes:
    """Return the new header, padded to the room of the old one or to whole blocks more."""
    new = format_header(specs, metadata)
    if json.loads(new[8:]) == json.loads(old[8:]):
        return old
    blocks = max(-((len(old) - len(new)) // block_bytes), 0)
    length = len(old) + blocks * block_bytes - 8
    require_json_size(length, "the header of the result")
    return length.to_bytes(8, "little") + new[8:].ljust(length)


def _fit_config(old: bytes, values: dict[str, Any]) -> bytes:
    """Return the new config, the old one's very bytes if it says the same."""
    if json.loads(old) == values:
        return old
    return format_json(values).encode()
