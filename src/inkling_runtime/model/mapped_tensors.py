"""Tensors of safetensors files, mapped one after the other.

Not a loader: nothing is copied. Pages are given back as soon as a tensor is done with, so that a
file larger than the memory can be read through; a tensor is valid only until the next one.
"""

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor

from inkling_runtime.adapter.safetensors_file import TensorInfo

FLOATS: Mapping[str, torch.dtype] = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
}
"""The dtypes that can be read, by their names in a header."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a file."""

    path: Path
    info: TensorInfo


def iter_tensors(stored: Mapping[str, StoredTensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor with its name, in the order of the files and within them."""
    names = sorted(stored, key=lambda name: (stored[name].path, stored[name].info.start))
    for path, group in groupby(names, key=lambda name: stored[name].path):
        with path.open("rb") as file:
            # A private mapping: torch wants to be able to write, the file stays as it is.
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        for name in group:
            info = stored[name].info
            yield name, _view(mapped, info)
            _forget(mapped, info)


def _view(mapped: mmap.mmap, info: TensorInfo) -> Tensor:
    dtype = FLOATS[info.dtype]
    count = info.nbytes // dtype.itemsize
    return torch.frombuffer(mapped, dtype=dtype, count=count, offset=info.start).view(info.shape)


def _forget(mapped: mmap.mmap, info: TensorInfo) -> None:
    """Give back the pages of a tensor; they would be read again if touched."""
    begin = info.start // mmap.PAGESIZE * mmap.PAGESIZE
    mapped.madvise(mmap.MADV_DONTNEED, begin, info.end - begin)
