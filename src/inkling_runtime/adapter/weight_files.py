"""Which safetensors files a checkpoint folder consists of: those of its index, else all."""

from collections.abc import Iterator
from pathlib import Path

from inkling_runtime.adapter.json_file import read_json_object
from inkling_runtime.adapter.shown import shown_text
from inkling_runtime.errors import InklingError, format_names

INDEX_NAME = "model.safetensors.index.json"


def iter_weight_files(folder: Path) -> Iterator[Path]:
    """Yield the safetensors files of a checkpoint folder, those of its index if it has one.

    Raises:
        InklingError: the index is not readable or names a file that is not there.
    """
    index = folder / INDEX_NAME
    try:
        files = indexed_files(index) if index.exists() else sorted(folder.glob("*.safetensors"))
    except OSError as error:
        raise InklingError(f"`{folder}` cannot be read: {error.strerror or error}") from error
    if not files:
        raise InklingError(f"`{folder}` holds no `.safetensors` file")
    yield from files


def indexed_files(index: Path) -> list[Path]:
    """Return the files that the index of a checkpoint lists, in order.

    Raises:
        InklingError: it is not readable or names a file that is not there.
    """
    return sorted(set(read_weight_map(index).values()))


def read_weight_map(index: Path) -> dict[str, Path]:
    """Return tensor → the file that an index says it is in.

    Raises:
        InklingError: the index is not readable or names a file that is not there.
    """
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise InklingError(f"`{index}` has no `weight_map` object")
    places = {tensor: str(name) for tensor, name in weight_map.items()}
    names = sorted(set(places.values()))
    outside = [shown_text(name) for name in names if Path(name).name != name]
    if outside:
        raise InklingError(f"`{index}` names files outside its folder: {format_names(outside)}")
    missing = [shown_text(name) for name in names if not (index.parent / name).is_file()]
    if missing:
        raise InklingError(f"`{index}` names files that are not there: {format_names(missing)}")
    return {tensor: index.parent / name for tensor, name in places.items()}
