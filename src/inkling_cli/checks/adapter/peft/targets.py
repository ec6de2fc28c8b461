"""Which modules and parameters PEFT wraps for a config, and what each wrapper holds.

The trap: parameters of one module nest in the order of their registration, whatever the order
in the config; the last one is the outermost, and its factors stand under the module's own name.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inkling_cli.checks.adapter.peft.expressions import whole_name
from inkling_cli.checks.adapter.peft.tree import HEAD, ModelModule, ModelTree, ModuleKind, Shape
from inkling_runtime.adapter.lora_config import LoraConfig

NESTED = ".base_layer"
ALL_LINEAR = "all-linear"
NOTHING = "dummy-target-modules"
"""A word with which PEFT wraps nothing and does not mind."""

FACTOR_SLOTS = ("lora_A.weight", "lora_B.weight")
BIAS_SLOT = "lora_B.bias"
MAGNITUDE_SLOT = "lora_magnitude_vector.weight"

IsTarget = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Wrapper:
    """What PEFT puts around a module or a parameter.

    Attributes:
        target: the path of the module or the parameter; patterns are matched with it.
        place: where its tensors lie: the module's path, and `base_layer` for each outer wrapper.
        slots: its tensors by name, with their shapes.
        first, second: the slots of the factors.
        is_parameter: whether it holds a parameter.
        is_certain: whether the model has the module for sure.
    """

    target: str
    place: str
    slots: Mapping[str, Shape]
    first: str
    second: str
    is_parameter: bool
    is_certain: bool


def targeted_modules(config: LoraConfig, tree: ModelTree) -> list[ModelModule]:
    """Return the modules that `target_modules` selects.

    Raises:
        UnusableExpressionError: an expression of the config does not compile.
        UnsettledExpressionError: it may take longer to match than anyone waits.
    """
    targets = config.target_modules
    if targets is None or targets == NOTHING:
        return []
    if isinstance(targets, str) and targets.lower() == ALL_LINEAR:
        linear = (m.path for m in tree.modules.values() if m.kind is ModuleKind.LINEAR)
        targets = tuple(path for path in linear if path != HEAD)
    is_target = whole_name(targets) if isinstance(targets, str) else _by_name(config, targets)
    is_excluded = _exclusion(config.values)
    found = [module for module in tree.modules.values() if is_target(module.path)]
    return [module for module in found if not is_excluded(module.path)]


def targeted_parameters(config: LoraConfig, tree: ModelTree) -> list[tuple[ModelModule, list[str]]]:
    """Return the modules whose parameters `target_parameters` selects, and which, innermost first.

    `exclude_modules` and `layers_to_transform` have no say here.
    """
    targets = set(config.target_parameters)
    found = []
    for module in tree.modules.values() if targets else ():
        names = [n for n in module.parameters if not targets.isdisjoint(ends(f"{module.path}.{n}"))]
        if names:
            found.append((module, names))
    return found


def saved_paths(config: LoraConfig, tree: ModelTree) -> list[str]:
    """Return the modules that PEFT saves whole; it does not look for a dot before the name."""
    names = tuple(config.values.get("modules_to_save") or ())
    return [path for path in tree.modules if path.endswith(names)] if names else []


def unmatched_targets(config: LoraConfig, tree: ModelTree) -> list[str]:
    """Return the names in the lists of targets that select nothing."""
    paths = {end for path in tree.modules for end in ends(path)}
    parameters = {
        end
        for module in tree.modules.values()
        for name in module.parameters
        for end in ends(f"{module.path}.{name}")
    }
    listed = config.target_modules if isinstance(config.target_modules, tuple) else ()
    return [t for t in listed if t not in paths] + [
        t for t in config.target_parameters if t not in parameters
    ]


def ends(path: str) -> Iterable[str]:
    """Yield a path and all its endings after a dot."""
    while path:
        yield path
        path = path.partition(".")[2]


def module_wrapper(module: ModelModule, config: LoraConfig) -> Wrapper:
    """Return the wrapper of a linear layer, an embedding or a convolution."""
    shape, rank = module.parameters["weight"], config.rank_of(module.path)
    if module.kind is ModuleKind.CONVOLUTION:
        shape = None
    first, second = FACTOR_SLOTS
    rows: int | None = None
    columns: int | None = None
    if module.kind is ModuleKind.EMBEDDING:
        first, second = ("lora_embedding_A", "lora_embedding_B")
        columns, rows = shape or (None, None)
    elif shape is not None:
        rows, columns = shape
    slots: dict[str, Shape] = {
        first: None if columns is None else (rank, columns),
        second: None if rows is None else (rows, rank),
    }
    if config.values.get("use_dora"):
        slots[MAGNITUDE_SLOT] = None if rows is None else (rows,)
    if config.values.get("lora_bias"):
        slots[BIAS_SLOT] = None if rows is None else (rows,)
    return Wrapper(module.path, module.path, slots, first, second, False, module.is_certain)


def parameter_wrappers(
    module: ModelModule, names: Sequence[str], config: LoraConfig
) -> list[Wrapper]:
    """Return the wrappers of a module's parameters, which nest: innermost first."""
    found = []
    for depth, name in zip(range(len(names) - 1, -1, -1), names, strict=True):
        target, shape = f"{module.path}.{name}", module.parameters[name]
        a = b = None
        if shape is not None:
            columns = config.rank_of(target) * (shape[0] if len(shape) == 3 else 1)
            a, b = (columns, shape[-1]), (shape[-2], columns)
        slots: dict[str, Shape] = dict(zip(FACTOR_SLOTS, (a, b), strict=True))
        place = module.path + NESTED * depth
        found.append(Wrapper(target, place, slots, *FACTOR_SLOTS, True, module.is_certain))
    return found


def _by_name(config: LoraConfig, targets: Iterable[str]) -> IsTarget:
    names = set(targets)
    layers = config.values.get("layers_to_transform")
    patterns = config.values.get("layers_pattern") or [r"[^.]*"]
    patterns = [patterns] if isinstance(patterns, str) else patterns
    start = r"(?:^|.*?\.)" if config.values.get("layers_pattern") else r".*?\."
    numbers = [re.compile(rf"{start}{pattern}\.(\d+)\.") for pattern in patterns]
    wanted = {layers} if isinstance(layers, int) else set(layers or ())

    def is_target(path: str) -> bool:
        if path in names:
            return True
        if names.isdisjoint(ends(path)):
            return False
        if layers is None or layers == []:
            return True
        match = next((m for number in numbers if (m := number.match(path))), None)
        return match is not None and int(match[1]) in wanted

    return is_target


def _exclusion(values: Mapping[str, Any]) -> IsTarget:
    excluded = values.get("exclude_modules") or ()
    saved = [re.compile(rf"(^|.*\.){name}($|\..*)") for name in values.get("modules_to_save") or ()]
    is_excluded = whole_name(excluded) if isinstance(excluded, str) else _ends_with(excluded)
    return lambda path: is_excluded(path) or any(pattern.match(path) for pattern in saved)


def _ends_with(names: Iterable[str]) -> IsTarget:
    wanted = set(names)
    return lambda path: not wanted.isdisjoint(ends(path))
