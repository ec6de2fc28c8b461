"""What keeps a module of an adapter from meaning anything, told from shapes and dtypes alone.

Not whether it fits a base model (`coverage`), nor what an engine makes of it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from inkling_runtime.adapter.adapter_module import AdapterModule, find_halves
from inkling_runtime.adapter.layouts import Layout
from inkling_runtime.adapter.safetensors_file import TensorInfo
from inkling_runtime.adapter.sites import Group, Site

FACTOR_DTYPES = ("BF16", "F16", "F32", "F64")


@dataclass(frozen=True, slots=True)
class Problem:
    """What keeps a module from meaning anything: a name for the kind, the module, the facts."""

    kind: str
    module: str
    message: str


def check_modules(modules: Sequence[AdapterModule]) -> tuple[Problem, ...]:
    """Return the problems of all modules of a file, each module by itself and among the others."""
    halves = find_halves(modules)
    numbered = {module.name for half in halves.values() for module in half.numbered}
    whole = numbered | {half.shared.name for half in halves.values()}
    problems = [
        problem
        for module in modules
        for problem in (_check_half(module) if module.name in whole else _check_module(module))
    ]
    return (*problems, *_check_twice(modules, numbered))


def _check_module(module: AdapterModule) -> Iterable[Problem]:
    a, b, layout = module.a, module.b, module.parsed.row.layout
    if a is None or b is None:
        have, lack = ("lora_A", "lora_B") if b is None else ("lora_B", "lora_A")
        yield Problem("missing-factor", module.name, f"it has {have} but no {lack}")
        return
    for tensor in (a, b):
        yield from _check_dtype(module, tensor)
        if len(tensor.shape) != layout.ndim:
            yield Problem(
                "shape",
                module.name,
                f"`{tensor.name}` has {len(tensor.shape)} dimensions, expected {layout.ndim}",
            )
            return
    if 0 in a.shape + b.shape:
        yield Problem("shape", module.name, f"A is {list(a.shape)} and B {list(b.shape)}: empty")
        return
    yield from _check_ranks(module, a, b)


def _check_dtype(module: AdapterModule, tensor: TensorInfo) -> Iterable[Problem]:
    if tensor.dtype not in FACTOR_DTYPES:
        message = f"`{tensor.name}` has dtype {tensor.dtype}, expected a float dtype"
        yield Problem("dtype", module.name, message)


def _check_half(module: AdapterModule) -> Iterable[Problem]:
    """Yield the problems of a module whose other factor lies elsewhere."""
    (tensor,) = module.tensors
    yield from _check_dtype(module, tensor)
    is_shared = module.parsed.row.layout is Layout.STACK
    shape = tensor.shape[1:] if is_shared and len(tensor.shape) == 3 else tensor.shape
    if len(shape) != 2:
        expected = "2 or 3" if is_shared else "2"
        message = f"`{tensor.name}` has {len(tensor.shape)} dimensions, expected {expected}"
        yield Problem("shape", module.name, message)
    elif 0 in tensor.shape:
        yield Problem("shape", module.name, f"`{tensor.name}` is {list(tensor.shape)}: empty")
    elif len(tensor.shape) == 3 and tensor.shape[0] != 1:
        message = (
            f"`{tensor.name}` holds {tensor.shape[0]} experts, expected 1, "
            "since the other factor is stored expert by expert"
        )
        yield Problem("shape", module.name, message)
    elif (rank := shape[0] if module.b is None else shape[1]) != module.rank:
        message = f"`{tensor.name}` is {list(tensor.shape)}: rank {rank}, "
        yield Problem("rank", module.name, f"{message}the config says {module.rank}")


def _check_ranks(module: AdapterModule, a: TensorInfo, b: TensorInfo) -> Iterable[Problem]:
    layout, rank_a, rank_b = module.parsed.row.layout, a.shape[-2], b.shape[-1]
    shapes = f"A is {list(a.shape)} and B {list(b.shape)}"
    is_fused_qkvr = layout is Layout.QKVR and rank_a == 4 * rank_b
    if rank_a != rank_b and not is_fused_qkvr:
        message = f"{shapes}: their ranks {rank_a} and {rank_b} differ"
        yield Problem("rank", module.name, message)
    elif layout.is_packed and rank_a % module.rank:
        yield Problem(
            "rank",
            module.name,
            f"{shapes}, expected a multiple of the rank {module.rank} in the config",
        )
    elif not layout.is_packed and rank_b != module.rank:
        yield Problem(
            "rank", module.name, f"{shapes}: rank {rank_b}, the config says {module.rank}"
        )
    counts = {a.shape[0], b.shape[0]} - {1}
    if layout.ndim == 3 and len(counts) > 1:
        yield Problem("shape", module.name, f"{shapes}: their numbers of experts differ")
    elif layout.ndim == 3 and not counts and _is_routed(module):
        yield Problem("shape", module.name, f"{shapes}: their numbers of experts are both 1")


def _is_routed(module: AdapterModule) -> bool:
    """Whether a module adapts routed experts, of which no model has only one."""
    return any(site.kind.group is Group.ROUTED for site in module.sites)


def _check_twice(
    modules: Sequence[AdapterModule], numbered_halves: Collection[str]
) -> Iterable[Problem]:
    """Yield modules that share weights: one for all experts (-1), or the same expert twice.

    Of experts in halves the shared one stands for all.
    """
    seen: dict[Site, dict[int, str]] = {}
    for module in (m for m in modules if m.name not in numbered_halves):
        for site in module.sites:
            experts, expert = seen.setdefault(site, {}), module.parsed.expert
            if expert < 0:
                other = next(iter(experts.values()), None)
            else:
                other = experts.get(-1) or experts.get(expert)
            if other is not None:
                yield Problem("twice", module.name, f"it adapts the same weights as `{other}`")
            experts.setdefault(expert, module.name)
