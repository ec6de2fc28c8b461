"""A GPU's memory as people write it."""

from inkling_cli.byte_size import parse_size


def parse_gpu_memory(text: str) -> int:
    """Return the bytes of a size like `141GiB` or `80GB`; `G` counts as `GiB`.

    Raises:
        InklingError: not a size above zero with a unit.
    """
    return parse_size(text, "--gpu-memory", "141GiB", "80GB")
