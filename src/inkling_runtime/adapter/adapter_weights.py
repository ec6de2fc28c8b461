"""The tensors of an adapter on disk: in one file, or in several (shards).

Headers alone, not numbers. One file is the rule and the only form that vLLM and PEFT read; where
it is there, shards beside it are not looked at. SGLang reads every safetensors file of the folder
and passes over the index.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inkling_runtime.adapter.safetensors_file import SafetensorsFile, TensorInfo, read_header
from inkling_runtime.adapter.shown import shown_text
from inkling_runtime.adapter.weight_files import read_weight_map
from inkling_runtime.errors import InklingError, format_names

WEIGHTS_NAME = "adapter_model.safetensors"
WEIGHTS_INDEX_NAME = f"{WEIGHTS_NAME}.index.json"

MAX_SHARDS = 200
"""The most files of an adapter: all are open at once, where some systems allow a process 256."""

MAX_TENSORS = 200_000
"""Of all files together: twice as many as the largest released adapter has with every expert's
factors apart, and more than one header can hold."""

_SHARD_NAME = re.compile(r"adapter_model-(\d{5})-of-(\d{5})\.safetensors")
_FETCH_AGAIN = "fetch the adapter again, with all of its files"
_SAVE_AGAIN = "files of several saves may be mixed; fetch or save the adapter again"


@dataclass(frozen=True, slots=True)
class AdapterWeights:
    """The tensors of an adapter.

    Attributes:
        path: the file; of several their index, or the first of them where there is none.
        files: their headers, in order.
        tensors: of all files, in the order of the files and of their headers.
        metadata: what all files say alike.
        file_numbers: tensor → the number of its file, from 0.
    """

    path: Path
    files: tuple[SafetensorsFile, ...]
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]
    file_numbers: Mapping[str, int]

    @property
    def is_sharded(self) -> bool:
        """Whether the tensors are in shards, not in the one file that everybody reads."""
        return self.files[0].path.name != WEIGHTS_NAME

    @property
    def file_names(self) -> tuple[str, ...]:
        """The names of the files, in order."""
        return tuple(file.path.name for file in self.files)

    @property
    def file_size(self) -> int:
        """The bytes of all files."""
        return sum(file.file_size for file in self.files)

    def path_of(self, tensor: str) -> Path:
        """Return the file that a tensor is in."""
        return self.files[self.file_numbers[tensor]].path


def shard_name(number: int, count: int) -> str:
    """Return the name of one of `count` shards; the first has number 1."""
    return f"adapter_model-{number:05}-of-{count:05}.safetensors"


def weights_among(names: Iterable[str]) -> tuple[str, ...]:
    """Return which names in a folder are those of an adapter's weights.

    The one file alone where it is there, else the index before the shards.
    """
    found = set(names)
    if WEIGHTS_NAME in found:
        return (WEIGHTS_NAME,)
    shards = sorted(name for name in found if _numbers_of(name))
    return (WEIGHTS_INDEX_NAME, *shards) if WEIGHTS_INDEX_NAME in found else tuple(shards)


def _numbers_of(name: str) -> tuple[int, int] | None:
    """Return the number and the count in the name of a shard; None if it is no shard's."""
    match = _SHARD_NAME.fullmatch(name)
    if match is None:
        return None
    number, count = int(match[1]), int(match[2])
    return (number, count) if 1 <= number <= count else None


def read_weights(folder: Path) -> AdapterWeights:
    """Return the tensors of the adapter in a folder.

    Raises:
        InklingError: there are none, a file is missing or broken, or files and index contradict
            each other.
    """
    weights, index = folder / WEIGHTS_NAME, folder / WEIGHTS_INDEX_NAME
    try:
        if _is_there(weights):
            return _read_files(weights, [weights])
        if _is_there(index):
            return _read_indexed(index)
        names = [entry.name for entry in folder.iterdir()]
    except OSError as error:
        raise InklingError(f"`{folder}` cannot be read: {error.strerror or error}") from error
    if not weights_among(names):
        raise _missing_weights(folder, names)
    paths = [folder / name for name in _whole_set(folder, names)]
    return _read_files(paths[0], paths)


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _missing_weights(folder: Path, names: Collection[str]) -> InklingError:
    for other in ("adapter_model.bin", "adapter_model.pt"):
        if other in names:
            return InklingError(
                f"`{folder}` holds `{other}` but no `{WEIGHTS_NAME}`",
                "save it with safetensors: pickled weights run code when they are loaded",
            )
    return InklingError(f"`{folder}` holds no `{WEIGHTS_NAME}`")


def _whole_set(folder: Path, names: Collection[str]) -> list[str]:
    """Return the names of all shards of a folder without an index, each of which must be there."""
    counts = sorted({numbers[1] for name in names if (numbers := _numbers_of(name))})
    if len(counts) > 1:
        raise InklingError(
            f"`{folder}` holds shards of {counts[0]} files and of {counts[1]}, "
            "expected those of one save",
            "move out of the folder what is not part of the adapter",
        )
    _require_few(counts[0], folder)
    whole = [shard_name(number, counts[0]) for number in range(1, counts[0] + 1)]
    missing = [name for name in whole if name not in names]
    if missing:
        raise InklingError(
            f"`{folder}` holds {len(whole) - len(missing)} of {len(whole)} shards, "
            f"expected also {format_names(missing)}",
            _FETCH_AGAIN,
        )
    return whole


def _require_few(num_files: int, path: Path) -> None:
    if num_files > MAX_SHARDS:
        raise InklingError(
            f"`{path}` has {num_files} shards, expected at most {MAX_SHARDS}",
            "save the adapter again in larger shards",
        )


def _read_indexed(index: Path) -> AdapterWeights:
    try:
        listed = read_weight_map(index)
    except InklingError as error:
        raise InklingError(error.message, error.hint or _FETCH_AGAIN) from error
    paths = sorted(set(listed.values()))
    if not paths:
        raise InklingError(f"the `weight_map` of `{index}` is empty, expected tensors")
    _require_few(len(paths), index)
    weights = _read_files(index, paths)
    _require_as_listed(weights, listed)
    return weights


def _read_files(path: Path, paths: Sequence[Path]) -> AdapterWeights:
    files: list[SafetensorsFile] = []
    numbers: dict[str, int] = {}
    for file_path in paths:
        file = read_header(file_path)
        twice = min(numbers.keys() & file.tensors.keys(), default=None)
        if twice is not None:
            raise InklingError(
                f"tensor `{shown_text(twice)}` is in `{file_path}` and in "
                f"`{paths[numbers[twice]].name}`, expected in one file",
                _SAVE_AGAIN,
            )
        numbers |= dict.fromkeys(file.tensors, len(files))
        if len(numbers) > MAX_TENSORS:
            raise InklingError(
                f"`{path}` has {len(numbers)} tensors and more, expected at most {MAX_TENSORS}"
            )
        files.append(file)
    tensors = {name: tensor for file in files for name, tensor in file.tensors.items()}
    return AdapterWeights(path, tuple(files), tensors, _common_metadata(files), numbers)


def _common_metadata(files: Sequence[SafetensorsFile]) -> dict[str, str]:
    first, *others = (file.metadata for file in files)
    return {
        key: value
        for key, value in first.items()
        if all(other.get(key) == value for other in others)
    }


def _require_as_listed(weights: AdapterWeights, listed: Mapping[str, Path]) -> None:
    """Require that the index and the files hold the same tensors in the same places."""
    absent = [
        name
        for name, path in listed.items()
        if name not in weights.tensors or weights.path_of(name) != path
    ]
    if absent:
        more = f" (and {len(absent) - 1} more tensors)" if len(absent) > 1 else ""
        raise InklingError(
            f"`{weights.path}` lists `{shown_text(absent[0])}` in "
            f"`{listed[absent[0]].name}`, which does not hold it{more}",
            _SAVE_AGAIN,
        )
    unlisted = [name for name in weights.tensors if name not in listed]
    if unlisted:
        names = format_names([shown_text(name) for name in unlisted])
        raise InklingError(
            f"`{weights.path_of(unlisted[0])}` holds tensors that the index does not list: {names}",
            _SAVE_AGAIN,
        )
