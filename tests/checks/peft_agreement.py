"""Compares what we say of an adapter with what PEFT does with it."""

import re
from pathlib import Path

import torch

from adapter.peft_models import Observed, observe
from checks.peft_cases import Made
from factories import TINY, raw_config, transformers_config
from inkling_cli.checks.adapter.peft.effects import FACTOR_ALONE, OVERRIDDEN, peft_effects
from inkling_cli.checks.adapter.subject import read_subject
from inkling_cli.checks.effect import Effect, Fate
from inkling_runtime.adapter.model_spec import parse_model_spec

SPECS = {
    "mm": parse_model_spec(raw_config()),
    "text": parse_model_spec(transformers_config(TINY)),
}
_ENDING = re.compile(r"\.lora_(?:embedding_)?([AB])(?:\.[^.]+)*$")


def disagreement(made: Made, folder: Path) -> str | None:
    """Return what we say otherwise than PEFT does, or None."""
    made.write(folder / "adapter")
    effects = peft_effects(read_subject(folder / "adapter", SPECS[made.kind]))
    modules = {_ENDING.sub("", name) for name in made.tensors}
    assert [effect.module for effect in effects] == sorted(modules)
    observed = observe(made.kind, folder / "adapter")
    fates = {effect.fate for effect in effects}
    if Fate.REFUSED in fates or observed.error is not None:
        agree = observed.error is not None and fates <= {Fate.REFUSED, Fate.NOT_CHECKED}
        return None if agree else f"PEFT: {observed.error}; said: {_said(effects)}"
    for effect in effects:
        tensors = {n: t for n, t in made.tensors.items() if _ENDING.sub("", n) == effect.module}
        problem = _disagreement_on(effect, tensors, observed)
        if problem is not None:
            return f"{effect}: {problem}"
    return _effect_of_dropped(made, effects, observed, folder)


def _said(effects: tuple[Effect, ...]) -> set[tuple[str, str, str]]:
    return {(effect.fate.value, effect.cause, effect.reason) for effect in effects}


def _disagreement_on(
    effect: Effect, tensors: dict[str, torch.Tensor], observed: Observed
) -> str | None:
    places = {name: observed.places(tensor) for name, tensor in tensors.items()}
    missing = [name for name, found in places.items() if not found]
    if effect.fate is Fate.APPLIED:
        if missing:
            return f"not in the model: {missing}"
        found = [_split(found[0]) for found in places.values()]
        owners = {owner for owner, letter in found if letter}
        letters = {letter for _, letter in found if letter}
        if owners and (len(owners) != 1 or letters != {"A", "B"}):
            return f"loaded to {places}"
    if effect.fate is Fate.DROPPED and effect.cause != FACTOR_ALONE and len(missing) < len(places):
        return f"loaded to {places}"
    return None


def _split(name: str) -> tuple[str, str]:
    match = _ENDING.search(name)
    return (name[: match.start()], match[1]) if match else (name, "")


def _effect_of_dropped(
    made: Made, effects: tuple[Effect, ...], observed: Observed, folder: Path
) -> str | None:
    """What is dropped changes no logit; what is left random changes them from seed to seed.

    Where names fight for one place, taking one away changes who wins: then it gets other numbers.
    """
    dropped = {effect.module for effect in effects if effect.fate is Fate.DROPPED}
    are_fighting = any(effect.cause == OVERRIDDEN for effect in effects)
    left = {
        name: tensor + 1 if _ENDING.sub("", name) in dropped else tensor
        for name, tensor in made.tensors.items()
        if are_fighting or _ENDING.sub("", name) not in dropped
    }
    if dropped:
        without = Made(made.kind, left, made.config)
        without.write(folder / "without")
        other = observe(made.kind, folder / "without")
        if other.error or not torch.equal(other.logits, observed.logits):
            return f"dropped modules have an effect: {other.error}"
    if made.config["lora_alpha"] and any("random" in effect.reason for effect in effects):
        again = observe(made.kind, folder / "adapter", seed=1)
        if torch.equal(again.logits, observed.logits):
            return "nothing is random"
    return None
