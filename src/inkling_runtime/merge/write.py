"""Write a planned merge: the target folder is absent or whole, whatever happens.

Memory is a few buffers, whatever the size of the base: `tensor_writer` goes through a tensor in
boxes, and shards without a delta are copied by the kernel.
"""

from collections.abc import Callable
from pathlib import Path

from inkling_runtime.adapter.convert.place import require_place
from inkling_runtime.adapter.new_folder import new_folder
from inkling_runtime.adapter.open_files import require_unchanged
from inkling_runtime.adapter.tensor_writer import write_tensors
from inkling_runtime.merge.copy_file import copy_file
from inkling_runtime.merge.magnitudes import require_computable
from inkling_runtime.merge.merge import Merge

_MARKER = "config.json"
"""A folder without it is no checkpoint and is not replaced."""

Hashes = dict[str, dict[str, str]]
"""Shard → tensor → SHA-256 of its bytes."""


def write_merge(
    merge: Merge,
    out: Path,
    *,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> Hashes:
    """Write the checkpoint that a plan describes; return what its changed shards hold.

    Raises:
        InklingError: `out` may not be written (`require_target`), the disk is full, a factor is
            no number, a sum is beyond what the base's dtype holds, or the base or an adapter
            changed since it was planned. Nothing is left behind.
    """
    require_target(merge, out, overwrite)
    hashes: Hashes = {}
    with new_folder(out, overwrite, merge.nbytes) as folder:
        require_computable(pair for addend in merge.addends for pair in addend.pairs.values())
        for path in merge.base.others:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            copy_file(merge.base.path / path, folder / path, lambda nbytes: None)
        for shard in merge.shards:
            source, target = shard.source, folder / shard.source.path.name
            if shard.is_changed:
                hashes[target.name] = write_tensors(
                    target, shard.outputs, source.metadata, progress
                )
            else:
                copy_file(source.path, target, progress)
        require_unchanged(shard.source for shard in merge.shards)
        for addend in merge.addends:
            require_unchanged(addend.adapter.file.files)
    return hashes


def require_target(merge: Merge, out: Path, overwrite: bool) -> None:
    """Require that a merged checkpoint may be written to `out`.

    Raises:
        InklingError: it is, holds or lies in a folder that is read, or `require_new` refuses it.
    """
    sources = [merge.base.path, *(addend.adapter.path for addend in merge.addends)]
    require_place(sources, out, overwrite, _MARKER)
