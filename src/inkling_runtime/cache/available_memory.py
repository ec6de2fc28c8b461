"""How much memory a cache may take where nobody says how much."""

from pathlib import Path

import torch

_GPU_SHARE = 0.85
"""Of what is free; the rest is for the numbers within a step."""
_CPU_SHARE = 0.5
"""Of what is available; pages are taken only as they are written."""
_FALLBACK = 4 << 30
"""Where the system does not say."""
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def sensible_cache_memory(device: torch.device) -> int:
    """Return bytes that a cache on a device may take once the model is loaded."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] * _GPU_SHARE)
    return int(available_memory() * _CPU_SHARE)


def available_memory(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int:
    """Return the bytes that the system says can be had, within the limit of its control group."""
    available = _read_available(meminfo)
    limit, used = (_read_number(cgroup / name) for name in ("memory.max", "memory.current"))
    if limit is not None and used is not None:
        available = min(available, max(limit - used, 0))
    return available


def _read_available(meminfo: Path) -> int:
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return _FALLBACK


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
