"""A number of bytes as people write it: `141GiB`, `2GB`."""

import re

from inkling_runtime.errors import InklingError

_BINARY = {letter: 1 << 10 * power for power, letter in enumerate("KMGT", 1)}
_UNITS = {
    "B": 1,
    **_BINARY,
    **{f"{letter}IB": size for letter, size in _BINARY.items()},
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)},
}


def parse_size(text: str, option: str, *examples: str) -> int:
    """Return the bytes of a size like `141GiB` or `80GB`; `G` counts as `GiB`.

    Args:
        text: a number with a unit.
        option: that it was given with, for the message.
        examples: of sizes that the option may have.

    Raises:
        InklingError: not a size above zero with one of the units.
    """
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([A-Za-z]+)", text.strip())
    unit = _UNITS.get(match[2].upper()) if match else None
    nbytes = int(float(match[1]) * unit) if match and unit else 0
    if nbytes <= 0:
        raise InklingError(
            f"`{option} {text}` is not a size, expected a number with a unit",
            "for example " + " or ".join(f"`{option} {example}`" for example in examples),
        )
    return nbytes
