"""One pass over an adapter's files: what its numbers are, in little memory.

Windows are read and measured by a few threads (reading, masks and matrix products leave Python's
lock) and added up in the order of the plan, so that the answer does not depend on the threads.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import numpy as np

from inkling_runtime.adapter.adapter import Adapter
from inkling_runtime.adapter.open_files import OpenFiles, require_unchanged
from inkling_runtime.adapter.rounding import RawArray
from inkling_runtime.adapter.safetensors_file import DTYPE_BITS
from inkling_runtime.adapter.site_pairs import SitePairs
from inkling_runtime.adapter.values.adapter_values import AdapterValues
from inkling_runtime.adapter.values.delta_values import gram
from inkling_runtime.adapter.values.plan import (
    WINDOW_BYTES,
    FactorPlan,
    PassPlan,
    Window,
    plan_pass,
)
from inkling_runtime.adapter.values.sums import Measured, Sums
from inkling_runtime.adapter.values.tensor_values import magnitude_of, measure_run

_THREADS = 2
_AHEAD = 4
"""Batches that are read or wait to be added up."""

Batch = tuple[Window, ...]


def read_values(
    adapter: Adapter,
    pairs: SitePairs,
    progress: Callable[[int], None] = lambda nbytes: None,
    window_bytes: int = WINDOW_BYTES,
) -> AdapterValues:
    """Return what the numbers of an adapter are, each byte of the file read once.

    Memory: a few windows of 4 MB, the largest A without experts, and [E, R, R] per open factor.

    Args:
        adapter: its header.
        pairs: its factors by site, from headers alone (`gather_sound_pairs`).
        progress: called with the number of bytes that were just read.
        window_bytes: how much is read at once, where a tensor can be read in parts.

    Raises:
        InklingError: the file cannot be read, or has changed since its header was read.
    """
    plan = plan_pass(adapter, pairs, window_bytes)
    sums = Sums(plan, pairs)
    require_unchanged(adapter.file.files)
    with OpenFiles() as files, closing(_iter_measured(files, plan, window_bytes)) as found:
        for measured in found:
            sums.add(measured)
            progress(measured.window.end - measured.window.start)
    require_unchanged(adapter.file.files)
    return sums.values(adapter.file.tensors)


def _iter_measured(
    files: OpenFiles, plan: PassPlan, window_bytes: int
) -> Generator[Measured, None, None]:
    waiting: deque[Future[list[Measured]]] = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            for batch in _batches(plan.windows, window_bytes):
                waiting.append(pool.submit(_measure, files, plan, batch))
                if len(waiting) > _AHEAD:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _batches(windows: Iterable[Window], most: int) -> Iterator[Batch]:
    """Yield runs of windows that follow one another in the file, of about a window's size."""
    batch: list[Window] = []
    for window in windows:
        if batch and not (_is_next(batch[-1], window) and window.end - batch[0].start <= most):
            yield tuple(batch)
            batch = []
        batch.append(window)
    if batch:
        yield tuple(batch)


def _is_next(first: Window, second: Window) -> bool:
    return (first.path, first.end) == (second.path, second.start)


def _measure(files: OpenFiles, plan: PassPlan, batch: Batch) -> list[Measured]:
    first, start = batch[0], batch[0].start
    data = np.empty(batch[-1].end - start, np.uint8)
    files.read_bytes(first.path, start, data.data, first.tensor.name)
    found = []
    for window in batch:
        part = data[window.start - start : window.end - start]
        found.append(_measure_window(window, part, plan.factors))
    return found


def _measure_window(window: Window, data: RawArray, factors: tuple[FactorPlan, ...]) -> Measured:
    dtype = window.tensor.dtype
    width = DTYPE_BITS[dtype] // 8
    raw = data.view(f"u{width}")
    run = measure_run(raw, dtype)
    products = []
    largest = magnitude_of(run.largest, dtype)
    for use in window.uses:
        factor = factors[use.factor]
        part, first = use.view.apply(raw.reshape(window.shape), window.first)
        if not part.size:
            continue
        is_by_expert = factor.is_stack and use.view.axis == 0
        expert = use.first_expert + (first if is_by_expert else 0)
        block = part if factor.is_stack else part[None]
        product = gram(block, dtype, factor.is_a, largest) if run.is_finite else None
        products.append((use.factor, expert, product))
    return Measured(window, run, tuple(products))
