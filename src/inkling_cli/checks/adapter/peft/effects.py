"""What PEFT on transformers does with each module of an adapter.

PEFT reports tensors that its wrappers lack, never tensors that it drops; here both are looked at.
The order of a packed lora_B cannot be seen from shapes, so nothing is claimed about it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from inkling_cli.checks.adapter.peft.loading import TOKENS_SLOT, Home, Loading, load
from inkling_cli.checks.adapter.peft.names import is_renamed
from inkling_cli.checks.adapter.peft.refusals import FILES, NO_TARGET, SETTINGS, UNSETTLED
from inkling_cli.checks.adapter.peft.settings import is_random, starts_at_zero
from inkling_cli.checks.adapter.peft.targets import BIAS_SLOT, MAGNITUDE_SLOT, NESTED, Wrapper
from inkling_cli.checks.adapter.peft.tree import HEAD, ModelTree, model_tree, unknown_tree
from inkling_cli.checks.adapter.subject import AdapterSubject
from inkling_cli.checks.effect import Effect, Fate, module_name
from inkling_runtime.adapter.adapter import Adapter
from inkling_runtime.adapter.dialects.peft import MULTIMODAL_ROOT, TEXT_ROOT, WRAPPER
from inkling_runtime.adapter.safetensors_file import DTYPE_BITS

NO_MATCH = "no match"
PREFIX = "prefix"
HALF_LOADED = "half loaded"
NOT_TARGETED = "not targeted"
OVERRIDDEN = "overridden"
FACTOR_ALONE = "factor alone"
RANDOM = "random"
NO_MAGNITUDE = "no magnitude"
OTHER_SCALE = "other scale"
TOKENS = "tokens"
NO_SIZES = "no sizes"

_CASTABLE = set(DTYPE_BITS) - {"F4", "F6_E2M3", "F6_E3M2", "F8_E8M0", "C64"}
"""Dtypes whose numbers PEFT takes into its own."""

_LAYERS = 66
"""Layers that a model of unknown size may have, beside those that the file names."""


@lru_cache(maxsize=1)
def peft_effects(subject: AdapterSubject) -> tuple[Effect, ...]:
    """Return the effect of every module of an adapter, and of tensors that belong to none.

    Which model is meant, the multimodal one or the text model, is told by the base model's
    config. Without it a module is dropped or refused only where both do the same with it.
    """
    effects = [effects_of(subject.adapter, loading) for loading in loadings(subject)]
    return effects[0] if subject.spec is not None else tuple(map(_agreed, *effects))


@lru_cache(maxsize=1)
def loadings(subject: AdapterSubject) -> tuple[Loading, ...]:
    """Return what PEFT does on the base model; without its config on both models, sizes unknown."""
    return tuple(load(subject.adapter, tree) for tree in _trees(subject))


def _trees(subject: AdapterSubject) -> tuple[ModelTree, ...]:
    if subject.spec is not None:
        return (model_tree(subject.spec),)
    named = {int(i) for name in subject.adapter.file.tensors for i in _LAYER.findall(name)}
    layers = sorted({*range(_LAYERS), *named})
    return tuple(unknown_tree(layers, is_multimodal=mm) for mm in (True, False))


_LAYER = re.compile(r"layers\.(0|[1-9]\d{0,4})\.")


def effects_of(adapter: Adapter, loading: Loading) -> tuple[Effect, ...]:
    """Return the effect of every module on disk for one model, in order of names."""
    groups: dict[str, list[str]] = {}
    for tensor in sorted(adapter.file.tensors):
        groups.setdefault(module_name(tensor), []).append(tensor)
    if loading.refusal is not None:
        return tuple(_refused(loading, module, groups[module]) for module in sorted(groups))
    judge = _Judge(adapter, loading)
    return tuple(judge.effect(module, groups[module]) for module in sorted(groups))


def _refused(loading: Loading, module: str, tensors: Iterable[str]) -> Effect:
    refusal = loading.refusal
    assert refusal is not None
    fate = Fate.NOT_CHECKED if refusal.cause == UNSETTLED else Fate.REFUSED
    own = next((tensor for tensor in tensors if tensor in loading.misfits), None)
    if own is None:
        return Effect(module, fate, refusal.cause, refusal.reason)
    return Effect(module, fate, refusal.cause, f"PEFT expects {list(loading.misfits[own])}")


def _agreed(one: Effect, other: Effect) -> Effect:
    """Return the effect that holds for both models, or that it is not known."""
    if {one.fate, other.fate} == {Fate.DROPPED}:
        return max(one, other, key=lambda effect: effect.cause in (NOT_TARGETED, HALF_LOADED))
    if {one.fate, other.fate} == {Fate.REFUSED} and {one.cause, other.cause} <= _BY_ITSELF:
        return one
    return Effect(one.module, Fate.NOT_CHECKED, NO_SIZES, "the base model's config is not given")


_BY_ITSELF = {FILES, SETTINGS, NO_TARGET}
"""Causes that lie in the adapter, whatever the model."""


class _Judge:
    """From the places of tensors to the fate of a module."""

    def __init__(self, adapter: Adapter, loading: Loading) -> None:
        self.config = adapter.config
        self.loading = loading
        self.tensors = adapter.file.tensors
        self.scalings = {module.name: module.scaling for module in adapter.modules}
        self.is_random = bool(loading.empty) and is_random(adapter.config)
        self.is_half_loaded = any(
            is_renamed(name) and home.wrapper is not None for name, home in loading.homes.items()
        )
        is_foreign = adapter.dialect.written_as != "peft" and bool(adapter.modules)
        self.prefixed = set() if is_foreign else _wrongly_prefixed(loading)

    def effect(self, module: str, tensors: Sequence[str]) -> Effect:
        homes = {name: self.loading.homes.get(name) for name in tensors}
        lost = [name for name, home in homes.items() if home is None]
        placed = [home for home in homes.values() if home is not None]
        if not placed:
            return Effect(module, Fate.DROPPED, *self._why_dropped(lost[0]))
        if any(home.shape is None or not self._is_castable(homes) for home in placed):
            reason = "its shape or dtype in the model is not known here"
            return Effect(module, Fate.NOT_CHECKED, NO_SIZES, reason)
        if self.is_random:
            count = len(self.loading.empty)
            return Effect(
                module, Fate.MISAPPLIED, RANDOM, f"{count} other wrappers keep random factors"
            )
        found = self._of_placed(module, placed)
        if found.fate is Fate.APPLIED and lost:
            cause, reason = self._why_dropped(lost[0])
            return Effect(module, Fate.MISAPPLIED, cause, f"without `{lost[0]}`: {reason}")
        return found

    def _is_castable(self, homes: Mapping[str, Home | None]) -> bool:
        return all(self.tensors[name].dtype in _CASTABLE for name, home in homes.items() if home)

    def _of_placed(self, module: str, placed: Sequence[Home]) -> Effect:
        wrapper = placed[0].wrapper
        if wrapper is None:
            if placed[0].slot == TOKENS_SLOT:
                reason = "with it PEFT leaves out the norm of all embeddings"
                return Effect(module, Fate.MISAPPLIED, TOKENS, reason)
            return Effect(module, Fate.APPLIED)
        own = {home.slot for home in placed}
        if own & {wrapper.first, wrapper.second}:
            return self._of_factors(module, wrapper, own)
        if BIAS_SLOT not in own:
            return Effect(module, Fate.APPLIED)
        other = self.loading.filled(wrapper).get(wrapper.second)
        if other is not None:
            reason = f"its factors are taken from `{other}`"
            return Effect(module, Fate.MISAPPLIED, OVERRIDDEN, reason)
        reason = "its factors are missing, the bias is added"
        return Effect(module, Fate.MISAPPLIED, FACTOR_ALONE, reason)

    def _of_factors(self, module: str, wrapper: Wrapper, own: set[str]) -> Effect:
        filled = self.loading.filled(wrapper)
        absent = {wrapper.first, wrapper.second} - filled.keys()
        if absent:
            return self._of_one_factor(module, wrapper, absent.pop(), BIAS_SLOT in filled)
        foreign = {wrapper.first, wrapper.second} - own
        if foreign:
            other = filled[foreign.pop()]
            return Effect(
                module, Fate.MISAPPLIED, OVERRIDDEN, f"its other factor is taken from `{other}`"
            )
        if MAGNITUDE_SLOT in wrapper.slots and MAGNITUDE_SLOT not in filled:
            reason = "the file lacks DoRA's magnitude vector, the base weight's norm is taken"
            return Effect(module, Fate.MISAPPLIED, NO_MAGNITUDE, reason)
        taken = self.config.scaling_of(wrapper.target)
        meant = self.scalings.get(module, taken)
        if taken != meant:
            reason = f"PEFT scales by {taken:g}, the config gives its name on disk {meant:g}"
            return Effect(module, Fate.MISAPPLIED, OTHER_SCALE, reason)
        return Effect(module, Fate.APPLIED)

    def _of_one_factor(self, module: str, wrapper: Wrapper, absent: str, has_bias: bool) -> Effect:
        is_zero = (absent == wrapper.second) != absent.startswith("lora_embedding")
        if is_zero and has_bias:
            reason = f"`{absent}` is missing and stays zero, the bias is added"
            return Effect(module, Fate.MISAPPLIED, FACTOR_ALONE, reason)
        if is_zero and starts_at_zero(self.config):
            reason = f"`{absent}` is missing and stays zero"
            return Effect(module, Fate.DROPPED, FACTOR_ALONE, reason)
        reason = f"`{absent}` is missing and stays random"
        return Effect(module, Fate.MISAPPLIED, FACTOR_ALONE, reason)

    def _why_dropped(self, tensor: str) -> tuple[str, str]:
        loading, key = self.loading, self.loading.keys[tensor]
        winner = loading.winners[key]
        if winner != tensor:
            return OVERRIDDEN, f"PEFT takes `{winner}` in its place"
        path = _path(key)
        if path in loading.tree.modules:
            return NOT_TARGETED, "the config does not ask for it"
        if self.is_half_loaded:
            return HALF_LOADED, "PEFT renames only a part of a raw checkpoint's names"
        if key in self.prefixed:
            return PREFIX, f"in this model its name begins with `{WRAPPER}{loading.tree.root}`"
        return NO_MATCH, "the transformers model has no module of that name"


def _path(key: str) -> str:
    """Return the module that a name means, without wrappers around it."""
    path = module_name(key).removesuffix(f".{MAGNITUDE_SLOT}")
    if not path.startswith(WRAPPER):
        return ""
    path = path.removeprefix(WRAPPER)
    return path.replace(f"{NESTED}.", ".").removesuffix(NESTED).replace(NESTED, "")


def _wrongly_prefixed(loading: Loading) -> set[str]:
    """Return the names that would be found if only their prefix were another.

    The head is called `lm_head` in every dialect, so that it alone says nothing of the prefix.
    """
    lost = {key for name, key in loading.keys.items() if name not in loading.homes}
    found = {
        key
        for key in lost
        if any(_path(name) in loading.tree.modules for name in _other_prefixes(key, loading.tree))
    }
    is_certain = found == lost or any(f"{HEAD}." not in key for key in found)
    return found if is_certain else set()


def _other_prefixes(key: str, tree: ModelTree) -> Iterable[str]:
    """Yield the names that would be meant if only the prefix were wrong."""
    bare = key
    while bare.startswith(WRAPPER):
        bare = bare.removeprefix(WRAPPER)
    for start in (MULTIMODAL_ROOT, TEXT_ROOT, "language_model.model.", "language_model.", ""):
        if bare.startswith(start):
            rest = bare.removeprefix(start)
            yield WRAPPER + rest
            yield WRAPPER + tree.root + rest
            return
