"""An adapter's one weights file dealt to several, by safetensors' own writer."""

from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

from factories import write_json

WEIGHTS = "adapter_model.safetensors"
INDEX = f"{WEIGHTS}.index.json"


def shard(number: int, count: int) -> str:
    """Return the name that transformers gives a shard of a file of this name."""
    return f"adapter_model-{number:05d}-of-{count:05d}.safetensors"


def split_weights(
    folder: Path,
    count: int,
    *,
    with_index: bool = True,
    keeps_single: bool = False,
    number_of: Callable[[int, str], int] | None = None,
    metadata: Mapping[int, Mapping[str, str]] | None = None,
) -> Path:
    """Put the tensors of a folder's weights into shards and return the folder.

    Args:
        folder: an adapter's.
        count: of the shards.
        with_index: whether an index is written too.
        keeps_single: whether the one file stays beside them.
        number_of: the shard, from 1, of a tensor by its place in the names' order and its name;
            in turn by default.
        metadata: of each shard; that of the one file by default.
    """
    number_of = number_of or (lambda place, _: place % count + 1)
    with safe_open(folder / WEIGHTS, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        own = file.metadata()
    places = {name: number_of(place, name) for place, name in enumerate(sorted(tensors))}
    for number in range(1, count + 1):
        part = {name: tensors[name] for name in places if places[name] == number}
        said = own if metadata is None else dict(metadata[number])
        save_file(part, folder / shard(number, count), metadata=said or None)
    if with_index:
        total = sum(tensor.nbytes for tensor in tensors.values())
        names = {name: shard(number, count) for name, number in places.items()}
        write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": names})
    if not keeps_single:
        (folder / WEIGHTS).unlink()
    return folder
