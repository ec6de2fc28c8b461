"""The limit of bench_generate.py: how fast all threads together read what no cache holds."""

import time
from typing import Any

import torch


class Side:
    """A buffer that is read again and again."""

    def load(self, megabytes: int) -> dict[str, Any]:
        """Fill a buffer."""
        self.buffer = torch.ones(megabytes << 17, dtype=torch.int64)
        return {"threads": torch.get_num_threads()}

    def read(self) -> dict[str, Any]:
        """Return the best rate of a few passes."""
        seconds = []
        for _ in range(7):
            begin = time.perf_counter()
            assert self.buffer.sum().item() == self.buffer.numel()
            seconds.append(time.perf_counter() - begin)
        return {"gb_per_s": self.buffer.nbytes / min(seconds) / 1e9}
