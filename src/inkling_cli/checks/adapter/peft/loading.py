"""What PEFT does when it loads an adapter into transformers' Inkling: which tensor goes where.

Computed from files, names, shapes and config alone, for one of the two models. What this means for
the modules on disk is said by `effects`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from inkling_cli.checks.adapter.peft.expressions import (
    UnsettledExpressionError,
    UnusableExpressionError,
)
from inkling_cli.checks.adapter.peft.names import looked_up
from inkling_cli.checks.adapter.peft.refusals import (
    FILES,
    SAVED,
    SETTINGS,
    SHAPES,
    UNSETTLED,
    Refusal,
    refusals_of_settings,
    refusals_of_targets,
)
from inkling_cli.checks.adapter.peft.targets import (
    NESTED,
    Wrapper,
    module_wrapper,
    parameter_wrappers,
    saved_paths,
    targeted_modules,
    targeted_parameters,
    unmatched_targets,
)
from inkling_cli.checks.adapter.peft.tree import EMBEDDING, ModelTree, Shape
from inkling_runtime.adapter.adapter import Adapter
from inkling_runtime.adapter.adapter_weights import WEIGHTS_NAME
from inkling_runtime.adapter.dialects.peft import WRAPPER
from inkling_runtime.adapter.lora_config import LoraConfig
from inkling_runtime.adapter.safetensors_file import TensorInfo
from inkling_runtime.errors import format_names

TOKENS_SLOT = "token_adapter.trainable_tokens_delta"


@dataclass(frozen=True, slots=True)
class Home:
    """Where a tensor is loaded to.

    Attributes:
        shape: of the place.
        wrapper: whose slot it is; None where it takes the place of a weight of the model.
        slot: the wrapper's.
        is_saved: whether the config asks for that weight, by `modules_to_save` or for tokens.
    """

    shape: Shape
    wrapper: Wrapper | None = None
    slot: str = ""
    is_saved: bool = False


@dataclass(frozen=True, slots=True)
class Loading:
    """What becomes of each tensor.

    Attributes:
        tree: the model.
        refusal: why nothing is loaded; None where it is.
        homes: tensor → where it is loaded to.
        keys: tensor → the name that PEFT looks up for it.
        winners: name that is looked up → the tensor that is loaded.
        wrappers: all of them.
        unmatched: targets that select nothing.
        misfits: tensors whose shapes PEFT refuses, and the shapes that it wants.
    """

    tree: ModelTree
    refusal: Refusal | None = None
    homes: Mapping[str, Home] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    winners: Mapping[str, str] = field(default_factory=dict)
    wrappers: tuple[Wrapper, ...] = ()
    unmatched: tuple[str, ...] = ()
    misfits: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def filled(self, wrapper: Wrapper) -> dict[str, str]:
        """Return slot → the tensor that fills it."""
        names = {slot: f"{WRAPPER}{wrapper.place}.{slot}" for slot in wrapper.slots}
        return {slot: self.winners[name] for slot, name in names.items() if name in self.winners}

    @property
    def empty(self) -> list[Wrapper]:
        """The wrappers that get no factor, of modules that the model has for sure."""
        return [
            wrapper
            for wrapper in self.wrappers
            if wrapper.is_certain and not self.filled(wrapper).keys() & _factors(wrapper)
        ]

    @property
    def overwritten(self) -> list[str]:
        """The tensors that take the place of a base weight unasked, in order."""
        return sorted(n for n, h in self.homes.items() if h.wrapper is None and not h.is_saved)


def _factors(wrapper: Wrapper) -> set[str]:
    return {wrapper.first, wrapper.second}


def load(adapter: Adapter, tree: ModelTree) -> Loading:
    """Return what PEFT does with an adapter on a model."""
    config = adapter.config
    if adapter.file.is_sharded:
        shards = format_names(adapter.file.file_names, 1)
        reason = f"its tensors are in {shards}, PEFT reads `{WEIGHTS_NAME}` alone"
        return Loading(tree, Refusal(FILES, reason))
    refusal = next(refusals_of_settings(config, tree), None)
    if refusal is not None:
        return Loading(tree, refusal)
    try:
        modules, parameters = targeted_modules(config, tree), targeted_parameters(config, tree)
    except UnusableExpressionError as error:
        return Loading(tree, Refusal(SETTINGS, f"the config has the expression {error}"))
    except UnsettledExpressionError as error:
        return Loading(tree, Refusal(UNSETTLED, f"the config has the expression {error}"))
    refusal = next(refusals_of_targets(config, tree, modules, parameters), None)
    if refusal is not None:
        return Loading(tree, refusal, unmatched=tuple(unmatched_targets(config, tree)))
    wrappers = [module_wrapper(module, config) for module in modules]
    for module, names in parameters:
        wrappers += parameter_wrappers(module, names, config)
    return _place(adapter, tree, wrappers)


def _place(adapter: Adapter, tree: ModelTree, wrappers: list[Wrapper]) -> Loading:
    tensors = adapter.file.tensors
    keys = looked_up(tensors, is_multimodal=tree.is_multimodal)
    winners = {key: name for name, key in keys.items()}
    places = _slots(wrappers)
    for key, home in _asked(adapter.config, tree):
        if key not in tensors:
            name = key.removeprefix(WRAPPER)
            return Loading(tree, Refusal(SAVED, f"the config asks for `{name}`, the file lacks it"))
        places[key] = home
    if any(key not in places for key in winners):
        places = {**_base_weights(tree, wrappers), **places}
    homes = {name: places[key] for key, name in winners.items() if key in places}
    misfits = {
        name: home.shape
        for name, home in homes.items()
        if home.shape is not None and home.shape != tensors[name].shape
    }
    return Loading(
        tree,
        None if not misfits else Refusal(SHAPES, _misfit(tensors, misfits)),
        homes,
        keys,
        winners,
        tuple(wrappers),
        tuple(unmatched_targets(adapter.config, tree)),
        misfits,
    )


def _misfit(tensors: Mapping[str, TensorInfo], misfits: Mapping[str, tuple[int, ...]]) -> str:
    name = min(misfits)
    found, wanted = list(tensors[name].shape), list(misfits[name])
    return f"`{name}` is {found}, PEFT expects {wanted}"


def _slots(wrappers: Iterable[Wrapper]) -> dict[str, Home]:
    return {
        f"{WRAPPER}{wrapper.place}.{slot}": Home(shape, wrapper, slot)
        for wrapper in wrappers
        for slot, shape in wrapper.slots.items()
    }


def _asked(config: LoraConfig, tree: ModelTree) -> Iterator[tuple[str, Home]]:
    """Yield the weights that the config asks for by name; PEFT fails without one of them."""
    for path in saved_paths(config, tree):
        for name, shape in tree.below(path):
            yield WRAPPER + name, Home(shape, is_saved=True)
    tokens = config.values.get("trainable_token_indices")
    if tokens is not None:
        rows = tokens[EMBEDDING] if isinstance(tokens, dict) else tokens
        path = f"{tree.root}{EMBEDDING}"
        shape = tree.modules[path].parameters["weight"]
        wanted = None if shape is None else (len(rows), shape[1])
        yield f"{WRAPPER}{path}.{TOKENS_SLOT}", Home(wanted, slot=TOKENS_SLOT, is_saved=True)


def _base_weights(tree: ModelTree, wrappers: Iterable[Wrapper]) -> dict[str, Home]:
    """Return the weights of the model itself under their names in the wrapped model.

    A tensor of such a name takes the weight's place, though nothing in the config asks for it.
    """
    levels: dict[str, int] = {}
    for wrapper in wrappers:
        path = wrapper.target.rpartition(".")[0] if wrapper.is_parameter else wrapper.target
        levels[path] = levels.get(path, 0) + 1
    found: dict[str, Home] = {}
    for module in tree.modules.values():
        place = module.path
        for path in _itself_and_parents(module.path):
            if path in levels:
                place = path + NESTED * levels[path] + place[len(path) :]
        for name, shape in {**module.parameters, **module.buffers}.items():
            found[f"{WRAPPER}{place}.{name}"] = Home(shape)
    return found


def _itself_and_parents(path: str) -> list[str]:
    """Return a path and the modules that it lies in, the innermost first."""
    found = [path]
    while "." in found[-1]:
        found.append(found[-1].rpartition(".")[0])
    return found
