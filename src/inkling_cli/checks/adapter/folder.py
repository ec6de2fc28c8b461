"""An adapter's folder as it lies on disk: the adapter, or why it cannot be read.

Only an adapter's own files are opened: its config and its weights, in one file or in shards. Of
all others the names are known. Where the weights are missing, the headers of other safetensors
files are looked at for factors.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from inkling_runtime.adapter.adapter import Adapter, read_adapter
from inkling_runtime.adapter.adapter_weights import read_weights, weights_among
from inkling_runtime.adapter.json_file import read_json_object
from inkling_runtime.adapter.lora_config import CONFIG_NAME, read_lora_config
from inkling_runtime.adapter.safetensors_file import read_header
from inkling_runtime.errors import InklingError

PICKLED_ENDINGS = (".bin", ".pt", ".pth")
INDEX_ENDING = ".safetensors.index.json"
_LOOKED_AT = 4
"""So many other files are opened in search of factors: they are of the same kind."""


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """A folder that the user calls an adapter.

    Attributes:
        path: the folder.
        adapter: what was read; None where it cannot be.
        problem: the first reason why not; None where it was read.
        names: of everything in the folder, sorted.
        weights_problem: why the weights cannot be read, where they are there.
        config_problem: why the config cannot be used, where it is there.
        factors_in: where the weights are missing, the other file that holds factors or, as an
            index, says where they are.
    """

    path: Path
    adapter: Adapter | None = None
    problem: InklingError | None = None
    names: tuple[str, ...] = ()
    weights_problem: InklingError | None = None
    config_problem: InklingError | None = None
    factors_in: str | None = None

    @property
    def weights(self) -> tuple[str, ...]:
        """The names of the adapter's weights: of one file, or of an index and shards."""
        return weights_among(self.names)

    @property
    def has_config(self) -> bool:
        """Whether something has the name of the config."""
        return CONFIG_NAME in self.names

    @property
    def pickled(self) -> str | None:
        """The adapter's weights as Python objects, if there are any."""
        names = (n for n in self.names if n.startswith("adapter_model"))
        return next((name for name in names if name.endswith(PICKLED_ENDINGS)), None)

    @property
    def further_weights(self) -> tuple[str, ...]:
        """The files that end in `.safetensors` beside the adapter's own."""
        own = self.weights if self.adapter is None else self.adapter.file.file_names
        return tuple(n for n in self.names if n.endswith(".safetensors") and n not in own)


def read_folder(path: Path, dialect: str | None = None) -> AdapterFolder:
    """Return the folder of an adapter, given itself or by one of its files.

    Raises:
        InklingError: there is no such folder, nothing in it is an adapter's, or the dialect is
            unknown.
    """
    path = path.parent if path.name == CONFIG_NAME or weights_among([path.name]) else path
    names = _names_in(path)
    try:
        return AdapterFolder(path, read_adapter(path, dialect), names=names)
    except InklingError as error:
        folder = AdapterFolder(
            path,
            problem=error,
            names=names,
            weights_problem=_problem_of(read_weights, path) if weights_among(names) else None,
            config_problem=_problem_of(read_lora_config, path) if CONFIG_NAME in names else None,
            factors_in=None if weights_among(names) else _find_factors(path, names),
        )
        if not _is_whole(folder) and _is_an_adapters(folder):
            return folder
        if "config.json" in names and error.hint is None:
            hint = "it looks like a base model, which is given with `--model`"
            raise InklingError(error.message, hint) from error
        raise


def _names_in(path: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(entry.name for entry in path.iterdir()))
    except OSError:
        return ()


def _problem_of(read: Callable[[Path], object], folder: Path) -> InklingError | None:
    """Return why a part of a folder cannot be read; None if it can."""
    try:
        read(folder)
    except InklingError as error:
        return error
    return None


def _is_whole(folder: AdapterFolder) -> bool:
    """Return whether weights and config are sound, so that the problem lies in what was asked."""
    problems = folder.weights_problem or folder.config_problem
    return bool(folder.weights) and folder.has_config and problems is None


def _is_an_adapters(folder: AdapterFolder) -> bool:
    """Return whether anything in a folder belongs to an adapter."""
    by_name = any(name.startswith(("adapter_model.", "adapter_model-")) for name in folder.names)
    return by_name or folder.has_config or folder.factors_in is not None


def _find_factors(folder: Path, names: Iterable[str]) -> str | None:
    """Return the first index or safetensors file whose tensor names are those of factors."""
    indexes = [name for name in names if name.endswith(INDEX_ENDING)]
    weights = [name for name in names if name.endswith(".safetensors")]
    for name in (indexes + weights)[:_LOOKED_AT]:
        try:
            if any(".lora_" in tensor for tensor in _tensor_names(folder / name)):
                return name
        except InklingError:
            continue
    return None


def _tensor_names(path: Path) -> Iterable[str]:
    if path.name.endswith(INDEX_ENDING):
        names = read_json_object(path).get("weight_map")
        return names if isinstance(names, dict) else ()
    return read_header(path).tensors
