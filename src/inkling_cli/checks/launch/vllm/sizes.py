"""Numbers of `vllm serve` as it reads them: `8k` is 8000, `8K` is 8192."""

import re

from inkling_cli.checks.launch.launch import parse_integer

ENDINGS = {
    "k": 10**3,
    "K": 2**10,
    "m": 10**6,
    "M": 2**20,
    "g": 10**9,
    "G": 2**30,
    "t": 10**12,
    "T": 2**40,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")


def parse_size(text: str | None) -> int | None:
    """Return a whole number with or without an ending, or None."""
    match = _SIZE.fullmatch((text or "").strip())
    if match is None:
        return parse_integer(text)
    return int(float(match[1]) * ENDINGS[match[2]])
