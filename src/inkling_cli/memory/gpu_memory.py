"""A GPU's memory as people write it."""

import re

from inkling_runtime.errors import InklingError

_UNITS = {"G": 1 << 30, "GIB": 1 << 30, "GB": 10**9, "M": 1 << 20, "MIB": 1 << 20, "MB": 10**6}


def parse_gpu_memory(text: str) -> int:
    """Return the bytes of a size like `141GiB` or `80GB`; `G` counts as `GiB`.

    Raises:
        InklingError: not a size above zero with one of the units.
    """
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([A-Za-z]+)", text.strip())
    unit = _UNITS.get(match[2].upper()) if match else None
    nbytes = int(float(match[1]) * unit) if match and unit else 0
    if nbytes <= 0:
        raise InklingError(
            f"`--gpu-memory {text}` is not a size, expected a number with a unit",
            "for example `--gpu-memory 141GiB` or `--gpu-memory 80GB`",
        )
    return nbytes
