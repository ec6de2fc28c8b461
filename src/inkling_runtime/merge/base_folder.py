"""A base checkpoint's folder as a value: its shards, and what becomes of every other file.

Headers only. Links are followed: a snapshot of a download cache consists of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from inkling_runtime.adapter.adapter_weights import WEIGHTS_NAME
from inkling_runtime.adapter.lora_config import CONFIG_NAME
from inkling_runtime.adapter.safetensors_file import SafetensorsFile, TensorInfo, read_header
from inkling_runtime.adapter.weight_files import INDEX_NAME, iter_weight_files
from inkling_runtime.errors import InklingError

_WEIGHT_ENDINGS = (
    ".bin",
    ".ckpt",
    ".gguf",
    ".h5",
    ".msgpack",
    ".npz",
    ".onnx",
    ".pt",
    ".pth",
    ".safetensors",
)
"""Of files that hold weights. Those that are no shard would hold the weights before the merge."""


@dataclass(frozen=True, slots=True)
class BaseFolder:
    """A checkpoint folder.

    Attributes:
        path: the folder.
        shards: the headers of its weights, in the order of their names.
        others: files that are copied, relative to the folder, sorted.
        left_out: files and folders that are not copied, relative to the folder, sorted.
    """

    path: Path
    shards: tuple[SafetensorsFile, ...]
    others: tuple[Path, ...]
    left_out: tuple[Path, ...]

    def tensors(self) -> dict[str, TensorInfo]:
        """Return the tensors of all shards by name.

        Raises:
            InklingError: one stands in two shards.
        """
        found: dict[str, tuple[TensorInfo, Path]] = {}
        for shard in self.shards:
            for name, tensor in shard.tensors.items():
                if name in found:
                    raise InklingError(
                        f"tensor `{name}` is in `{found[name][1]}` and in `{shard.path}`, "
                        "expected it once"
                    )
                found[name] = tensor, shard.path
        return {name: tensor for name, (tensor, _) in found.items()}


def read_base_folder(folder: Path) -> BaseFolder:
    """Return what a checkpoint folder holds.

    Raises:
        InklingError: there is no such folder, it holds no weights, or a header is broken.
    """
    try:
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise InklingError(
                f"`{folder}` {what}, expected the base model's folder",
                "merging needs its weights here: download them first",
            )
        shards = tuple(read_header(path) for path in iter_weight_files(folder))
        names = {shard.path.name for shard in shards}
        kept: list[Path] = []
        left_out: list[Path] = []
        for path, is_kept in _iter_files(folder, folder, names):
            (kept if is_kept else left_out).append(path.relative_to(folder))
    except OSError as error:
        raise InklingError(f"`{folder}` cannot be read: {error.strerror or error}") from error
    return BaseFolder(folder, shards, tuple(sorted(kept)), tuple(sorted(left_out)))


def _iter_files(root: Path, folder: Path, shards: set[str]) -> Iterator[tuple[Path, bool]]:
    """Yield every file that is no shard, and every folder that is not entered; whether it stays."""
    for path in folder.iterdir():
        if path.is_dir():
            if path.name.startswith(".") or path.is_symlink():
                yield path, False
            else:
                yield from _iter_files(root, path, shards)
        elif folder != root or path.name not in shards:
            yield path, path.is_file() and not _is_stale(path.name)


def _is_stale(name: str) -> bool:
    """Whether a file says what the weights were before the merge, or would change them again."""
    if name in (CONFIG_NAME, WEIGHTS_NAME):
        return True
    return name != INDEX_NAME and name.removesuffix(".index.json").endswith(_WEIGHT_ENDINGS)
