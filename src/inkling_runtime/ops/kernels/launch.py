"""The one way to launch a kernel: it is counted, and it can be compiled in place of being run.

Not a tuner: who launches chooses tile sizes and warps by a plain function of the sizes. The
launch goes to the current CUDA device, which must be that of the tensors.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

INTERPRETED = triton.knobs.runtime.interpret
"""Whether kernels run in the interpreter, on CPU tensors: bf16 must then never reach `tl.dot`."""

_counts: list[Counter[str]] = []
_compiled: list[Any] | None = None


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    *arguments: Any,
    num_warps: int = 4,
    num_stages: int = 2,
    **constants: Any,
) -> None:
    """Run a kernel over a grid; a grid without programs is no launch.

    Args:
        kernel: a `@triton.jit` function named `<what>_kernel`.
        grid: programs along up to three axes.
        arguments: tensors and numbers, in the kernel's order.
        num_warps: warps per program.
        num_stages: how many loop iterations' loads may be under way.
        constants: the kernel's `tl.constexpr` parameters.
    """
    if 0 in grid:
        return
    for count in _counts:
        count[kernel.fn.__name__] += 1
    # Said explicitly: the default changes in Triton 3.10, and results with it.
    options = {"num_warps": num_warps, "num_stages": num_stages, "enable_fp_fusion": True}
    if _compiled is None:
        kernel[grid](*arguments, **constants, **options)
    else:
        _compiled.append(kernel.warmup(*arguments, **constants, **options, grid=grid))


@contextmanager
def count_launches() -> Iterator[Counter[str]]:
    """Yield a counter of the launches made meanwhile, by kernel name; `.total()` is their sum."""
    count: Counter[str] = Counter()
    _counts.append(count)
    try:
        yield count
    finally:
        _counts.remove(count)


@contextmanager
def compile_launches(capability: int) -> Iterator[list[Any]]:
    """Compile launches made meanwhile for a compute capability (90: sm_90); nothing is run.

    Yields:
        the compiled kernels, in the order of the launches. Tensors may be meta tensors: they count
        as aligned, as an allocator's are.
    """
    global _compiled
    before, _compiled = _compiled, []
    driver.set_active(_AbsentGpu(capability))
    try:
        yield _compiled
    finally:
        _compiled = before
        # Not reset_active(): that would look for a GPU now.
        driver._active = None


class _AbsentGpu:
    """What Triton asks of a driver while it compiles, answered for a GPU that need not be here."""

    def __init__(self, capability: int) -> None:
        self._target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        """Return a number of its own for each target: Triton keeps compiled kernels by device."""
        return self._target.arch

    def get_current_stream(self, device: int) -> int:
        return 0
