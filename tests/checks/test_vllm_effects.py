"""What vLLM does with modules where no record can say it: LoRA off, sizes or targets not known."""

import pytest

from checks.launches import launch_of
from inkling_cli.checks.adapter.subject import ADAPTER_RULES
from inkling_cli.checks.effect import Effect, Fate, module_name
from inkling_cli.checks.launch import LAUNCH_RULES
from inkling_cli.checks.launch.subject import resolve_launch
from inkling_cli.checks.launch.vllm.causes import Cause
from inkling_cli.checks.launch.vllm.effects import vllm_effects

SHARED = "--enable-lora --enable-moe-shared-loras"


def effects_of(world, adapter: str, options: str = SHARED, model: str = "model") -> list[Effect]:
    name = world / model if (world / model).exists() else model
    command = f"vllm serve {name} {options} --lora-modules a={world}/adapters/{adapter}"
    subject = resolve_launch(launch_of(command))
    (facts,) = subject.adapters
    effects = vllm_effects(subject, facts)
    tensors = facts.adapter.file.tensors
    assert {effect.module for effect in effects} == {module_name(name) for name in tensors}
    return list(effects)


def fates(effects: list[Effect]) -> set[tuple[Fate, str]]:
    return {(effect.fate, effect.cause) for effect in effects}


def test_without_lora_nothing_is_applied(world):
    assert fates(effects_of(world, "for-vllm", "")) == {(Fate.DROPPED, Cause.LORA_OFF)}


def test_a_model_that_is_no_inkling_is_not_judged(world):
    effects = effects_of(world, "for-vllm", model="llama")
    assert fates(effects) == {(Fate.NOT_CHECKED, Cause.NO_MODEL)}


def test_without_sizes_nothing_passes(world):
    effects = effects_of(world, "for-vllm", model="org/Inkling")
    assert fates(effects) == {(Fate.NOT_CHECKED, Cause.NO_MODEL)}


@pytest.mark.parametrize(
    ("adapter", "cause", "count"),
    [("released", Cause.SHARED_NAME, 6), ("bare", Cause.NOWHERE, 29)],
)
def test_a_name_that_leads_nowhere_is_dropped_without_sizes_too(world, adapter, cause, count):
    effects = effects_of(world, adapter, model="org/Inkling")
    dropped = [effect for effect in effects if effect.fate is Fate.DROPPED]
    assert {effect.cause for effect in dropped} == {cause}
    assert len(dropped) == count
    assert {effect.fate for effect in effects} == {Fate.DROPPED, Fate.NOT_CHECKED}


def test_targets_of_an_unknown_value_are_not_judged(world):
    effects = effects_of(world, "for-vllm", f"{SHARED} --lora-target-modules '${{TARGETS}}'")
    assert fates(effects) == {(Fate.NOT_CHECKED, Cause.TARGETS_UNKNOWN)}


def test_every_rule_that_tells_a_cause_exists():
    known = {*LAUNCH_RULES.rules, *ADAPTER_RULES.rules}
    assert {rule for cause in Cause for rule in cause.rules} <= known
