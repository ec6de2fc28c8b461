"""Threads of the runtime on a CPU, to be settled before torch is imported.

Free of torch, because torch's OpenMP reads the environment once, when it is loaded. Threads that
spin while they wait take the cores from each other as soon as another process runs; threads that
sleep at once take long to wake. So they spin for a few microseconds, the time between two ops.
"""

import os
from collections.abc import MutableMapping

_ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "20000"}


def settle_threads(
    num_threads: int | None = None, environment: MutableMapping[str, str] = os.environ
) -> None:
    """Set how torch's threads wait, and how many there are; call it before `import torch`.

    What the user has set in the environment stays, except the number if one is given here.

    Args:
        num_threads: None: as many as there are cores.
        environment: where torch will look.
    """
    for name, value in _ENVIRONMENT.items():
        environment.setdefault(name, value)
    if num_threads is not None:
        environment["OMP_NUM_THREADS"] = str(num_threads)
