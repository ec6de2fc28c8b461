"""Tensors of safetensors files, mapped into memory.

Not a loader: nothing is copied. The mapping is private, so that writing to a tensor would never
reach the file, and it lives as long as a tensor of it. What a newcomer gets wrong: a mapped tensor
is the file. If the file is overwritten in place, the numbers change under the model, and if it is
cut, touching them ends the process (SIGBUS); a file that is replaced by renaming stays as it was.
"""

import mmap
import os
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor

from inkling_runtime.adapter.safetensors_file import TensorInfo
from inkling_runtime.errors import InklingError

DTYPES: Mapping[str, torch.dtype] = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn,
    "U8": torch.uint8,
    "I64": torch.int64,
}
"""The dtypes that can be read, by their names in a header."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a file, and the file's size when its header was read."""

    path: Path
    info: TensorInfo
    file_size: int


def iter_tensors(
    stored: Mapping[str, StoredTensor], kept: Container[str] = ()
) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor with its name, in the order of the files and within them.

    The pages of a tensor are given back as soon as the next one is asked for, so that files
    larger than the memory can be read through. Those of `kept` tensors stay.

    Raises:
        InklingError: a file cannot be read or has another size than when its header was read.
    """
    names = sorted(stored, key=lambda name: (stored[name].path, stored[name].info.start))
    for path, group in groupby(names, key=lambda name: stored[name].path):
        tensors = {name: stored[name] for name in group}
        mapped = _map(path, next(iter(tensors.values())).file_size)
        for name, tensor in tensors.items():
            yield name, _view(mapped, tensor.info)
            if name not in kept:
                _forget(mapped, tensor.info)


def _map(path: Path, size: int) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno()).st_size
            if found != size:
                raise InklingError(
                    f"`{path}` has {found} bytes, it had {size} when its header was read",
                    "wait until the checkpoint is complete, then load it again",
                )
            # torch wants to be able to write; a private mapping leaves the file as it is.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError as error:
        raise InklingError(f"`{path}` cannot be read: {error.strerror or error}") from error


def _view(mapped: mmap.mmap, info: TensorInfo) -> Tensor:
    dtype = DTYPES[info.dtype]
    count = info.nbytes // dtype.itemsize
    return torch.frombuffer(mapped, dtype=dtype, count=count, offset=info.start).view(info.shape)


def _forget(mapped: mmap.mmap, info: TensorInfo) -> None:
    """Give back the pages of a tensor; they would be read again if touched."""
    begin = info.start // mmap.PAGESIZE * mmap.PAGESIZE
    mapped.madvise(mmap.MADV_DONTNEED, begin, info.end - begin)
