"""How the tensors of an adapter are dealt to several files, and the index of those files.

Data alone, nothing is written. Consumers differ in what they read: SGLang takes every file of the
folder, vLLM and PEFT only one that holds everything.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from inkling_runtime.adapter.adapter_weights import MAX_SHARDS, WEIGHTS_NAME, shard_name
from inkling_runtime.adapter.safetensors_file import TensorSpec
from inkling_runtime.errors import InklingError

Shard = tuple[TensorSpec, ...]


def plan_shards(specs: Sequence[TensorSpec], shard_size: int) -> tuple[Shard, ...]:
    """Return the tensors of each file, in the order given, none left out.

    A tensor that is larger than `shard_size` gets a file of its own. Counted are the bytes of the
    tensors; the header of a file comes on top. Without tensors there is one file.

    Raises:
        InklingError: there would be more files than an adapter may have.
    """
    shards: list[list[TensorSpec]] = [[]]
    filled = 0
    for spec in specs:
        if shards[-1] and filled + spec.nbytes > shard_size:
            shards.append([])
            filled = 0
        shards[-1].append(spec)
        filled += spec.nbytes
    if len(shards) > MAX_SHARDS:
        total = sum(spec.nbytes for spec in specs)
        raise InklingError(
            f"shards of {shard_size:,} bytes make {len(shards)} files of {total:,} bytes, "
            f"expected at most {MAX_SHARDS} files",
            "make the shards larger",
        )
    return tuple(map(tuple, shards))


def shard_names(count: int) -> tuple[str, ...]:
    """Return the names of so many files; one alone has the name that every consumer reads."""
    if count == 1:
        return (WEIGHTS_NAME,)
    return tuple(shard_name(number, count) for number in range(1, count + 1))


def shard_index(shards: Iterable[Shard]) -> dict[str, Any]:
    """Return the index of several files: tensor → file, sorted, and the bytes of all tensors."""
    dealt = tuple(shards)
    places = {
        spec.name: name
        for name, shard in zip(shard_names(len(dealt)), dealt, strict=True)
        for spec in shard
    }
    total = sum(spec.nbytes for shard in dealt for spec in shard)
    return {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
