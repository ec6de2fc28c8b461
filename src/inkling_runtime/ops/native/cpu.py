"""What the CPU of this machine can do, in the words of the kernel of its system."""

import platform
from functools import cache
from pathlib import Path

_BF16_FEATURES = {"avx512_bf16", "amx_bf16", "bf16"}


@cache
def cpu_features() -> str:
    """Return the features of the CPU in one line."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    lines = text.splitlines()
    return next((line for line in lines if line.lower().startswith(("flags", "features"))), "")


@cache
def multiplies_bf16() -> bool:
    """Return whether the CPU has instructions that multiply bf16."""
    return not _BF16_FEATURES.isdisjoint(cpu_features().split())
