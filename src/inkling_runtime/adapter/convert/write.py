"""Write a planned conversion: the target folder is absent or whole, whatever happens.

Everything goes into a sibling folder that is flushed and renamed. Memory is bounded by the
largest computed tensor; tensors that are only copied pass a small buffer.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from inkling_runtime.adapter.adapter import WEIGHTS_NAME
from inkling_runtime.adapter.arrays import load
from inkling_runtime.adapter.convert.plan import Conversion, Output
from inkling_runtime.adapter.lora_config import CONFIG_NAME
from inkling_runtime.adapter.moves import Read
from inkling_runtime.adapter.new_folder import new_folder, require_new
from inkling_runtime.adapter.regular_file import open_regular
from inkling_runtime.adapter.safetensors_file import format_header
from inkling_runtime.errors import InklingError

_BUFFER_BYTES = 8 * 1024 * 1024

Progress = Callable[[int], None]
"""Called with the number of bytes just written."""


def write_conversion(
    conversion: Conversion,
    out: Path,
    *,
    overwrite: bool = False,
    progress: Progress = lambda nbytes: None,
) -> None:
    """Write the adapter folder that a plan describes.

    Raises:
        InklingError: `out` exists and may not be overwritten, is the source itself, its parent
            does not exist, or the disk is full. Nothing is left behind.
    """
    require_target(conversion.source.path, out, overwrite)
    free = shutil.disk_usage(out.absolute().parent).free
    if conversion.nbytes > free:
        raise InklingError(
            f"`{out}` needs {conversion.nbytes:,} bytes, the disk has {free:,} bytes free"
        )
    with new_folder(out, overwrite) as folder:
        _write_json(folder / CONFIG_NAME, conversion.config)
        with (folder / WEIGHTS_NAME).open("wb") as file:
            header = format_header(
                (output.spec for output in conversion.outputs), conversion.metadata
            )
            file.write(header)
            for output in conversion.outputs:
                _write_output(file, output)
                progress(output.spec.nbytes)
            file.flush()
            os.fsync(file.fileno())


def require_target(source: Path, out: Path, overwrite: bool) -> None:
    """Require that a result may be written to `out`.

    Raises:
        InklingError: it is the source, or `require_new` refuses it.
    """
    if out.resolve() == source.resolve():
        raise InklingError(f"`{out}` is the adapter that is being read, expected another folder")
    require_new(out, overwrite, CONFIG_NAME)
    if out.resolve() in source.resolve().parents:
        raise InklingError(f"`{out}` holds the adapter that is being read, expected another folder")


def _write_json(path: Path, values: dict[str, Any]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(values, indent=2, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _write_output(file: BinaryIO, output: Output) -> None:
    if isinstance(output.array, Read):
        _copy(file, output.array)
        return
    file.write(np.ascontiguousarray(load(output.array)).data)


def _copy(file: BinaryIO, read: Read) -> None:
    position, end = read.tensor.start, read.tensor.end
    with _open_source(read.path) as source:
        while position < end:
            chunk = os.pread(source.fileno(), min(_BUFFER_BYTES, end - position), position)
            if not chunk:
                raise InklingError(f"`{read.path}` ended inside `{read.tensor.name}`")
            file.write(chunk)
            position += len(chunk)


def _open_source(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except OSError as error:
        raise InklingError(f"`{path}` cannot be read: {error.strerror or error}") from error
