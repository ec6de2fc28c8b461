"""What becomes of modules in SGLang where its own code was not asked: no model, several ranks."""

import shlex
from collections import Counter

import pytest
import torch
from safetensors.torch import save_file

from checks.adapter_folders import (
    HIDDEN,
    QUERY,
    attention_modules,
    released_modules,
    shared_outer_modules,
    write_adapter,
)
from inkling_cli.checks.effect import Fate
from inkling_cli.checks.finding import Location
from inkling_cli.checks.launch.parse.adapter_refs import parse_given_adapters
from inkling_cli.checks.launch.parse.launches import parse_words
from inkling_cli.checks.launch.sglang.causes import TOLD_BY, Cause
from inkling_cli.checks.launch.sglang.effects import sglang_effects
from inkling_cli.checks.launch.subject import resolve_launch

TRITON = "--lora-backend triton"


def effects_of(folder, options, model, *, later=False):
    words = shlex.split(f"sglang serve --model-path {model} {options}")
    given = [f"a={folder}"] if later else []
    if not later:
        words += ["--lora-paths", f"a={folder}"]
    adapters = parse_given_adapters(given, Location(key="--lora"))
    subject = resolve_launch(parse_words(words), adapters=adapters)
    return sglang_effects(subject, subject.adapters[0])


def causes_of(effects):
    return Counter((effect.fate, effect.cause) for effect in effects)


def test_a_sound_adapter_is_applied_whole(world):
    effects = effects_of(world / "adapters/released", TRITON, world / "model")
    assert causes_of(effects) == {(Fate.APPLIED, ""): 30}


def write_halves(folder, *, ndim):
    """Write experts as Megatron-Bridge does: the shared factor once, the other one by one."""
    tensors = {}
    for module, shapes in shared_outer_modules(2).items():
        for letter, shape in zip("AB", shapes, strict=True):
            zeros = torch.zeros(shape, dtype=torch.bfloat16)
            if shape[0] == 1:
                tensors[f"{module}.lora_{letter}.weight"] = zeros if ndim == 3 else zeros[0]
                continue
            holder, _, name = module.rpartition(".")
            for expert, one in enumerate(zeros):
                tensors[f"{holder}.{expert}.{name}.lora_{letter}.weight"] = one.clone()
    write_adapter(folder)
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def test_experts_in_halves_are_applied_where_the_shared_one_has_three_dimensions(world, tmp_path):
    effects = effects_of(write_halves(tmp_path / "a", ndim=3), TRITON, world / "model")
    assert causes_of(effects) == {(Fate.APPLIED, ""): 30}


def test_experts_in_halves_lose_a_shared_one_of_two_dimensions(world, tmp_path):
    effects = effects_of(write_halves(tmp_path / "a", ndim=2), TRITON, world / "model")
    found = causes_of(effects)
    assert found[Fate.DROPPED, Cause.WRONG_LAYER] == 6
    assert found[Fate.MISAPPLIED, Cause.ONE_FACTOR] == 24


class TestWithoutModel:
    def test_nothing_is_applied(self, world):
        effects = effects_of(world / "adapters/released", TRITON, "org/Inkling")
        assert causes_of(effects) == {(Fate.NOT_CHECKED, Cause.NO_MODEL): 30}

    def test_names_and_config_still_decide(self, world):
        effects = effects_of(world / "adapters/for-vllm", TRITON, "org/Inkling")
        found = causes_of(effects)
        assert found[Fate.DROPPED, Cause.SINK_NAME] == 6
        assert found[Fate.MISAPPLIED, Cause.INTERLEAVED] == 1
        assert found[Fate.NOT_CHECKED, Cause.NO_MODEL] == 23

    def test_a_scale_is_wrong_whatever_the_sizes(self, world):
        effects = effects_of(world / "adapters/rslora", TRITON, "org/Inkling")
        assert causes_of(effects) == {(Fate.MISAPPLIED, Cause.RSLORA): 30}

    def test_experts_need_both_halves(self, world):
        options = f"{TRITON} --lora-target-modules qkvr wo_ud gate_up_proj lm_head"
        found = causes_of(effects_of(world / "adapters/released", options, "org/Inkling"))
        assert found[Fate.DROPPED, Cause.ONE_HALF] == 8


def test_another_model_is_not_judged(world):
    effects = effects_of(world / "adapters/released", TRITON, world / "llama")
    assert causes_of(effects) == {(Fate.NOT_CHECKED, Cause.NO_MODEL): 30}


def test_without_lora_everything_is_dropped(world):
    effects = effects_of(world / "adapters/released", TRITON, world / "model", later=True)
    assert causes_of(effects) == {(Fate.DROPPED, Cause.LORA_OFF): 30}


def test_targets_of_a_startup_adapter_elsewhere_are_unknown(world):
    options = f"{TRITON} --lora-paths b=/nowhere/else"
    effects = effects_of(world / "adapters/released", options, world / "model", later=True)
    assert causes_of(effects) == {(Fate.NOT_CHECKED, Cause.TARGETS_UNKNOWN): 30}


def test_layout_of_a_startup_adapter_elsewhere_is_unknown(world):
    options = f"{TRITON} --lora-paths b=/nowhere/else --lora-target-modules all"
    found = causes_of(effects_of(world / "adapters/released", options, world / "model", later=True))
    assert found[Fate.NOT_CHECKED, Cause.LAYOUT_UNKNOWN] == 12
    assert found[Fate.APPLIED, ""] == 18


class TestSeveralRanks:
    def test_what_fits_is_applied(self, world):
        effects = effects_of(world / "adapters/released", f"{TRITON} --tp-size 2", world / "model")
        assert causes_of(effects) == {(Fate.APPLIED, ""): 30}

    def test_what_does_not_fit_is_never_applied(self, world, tmp_path):
        shapes = {"language_model.layers.1.attn.wo_ud": ((2, QUERY - 32), (HIDDEN, 2))}
        folder = write_adapter(tmp_path / "narrow", {**released_modules(2), **shapes})
        effects = effects_of(folder, f"{TRITON} --tp-size 2", world / "model")
        assert causes_of(effects)[Fate.MISAPPLIED, Cause.CUT] == 1


def test_a_further_file_takes_the_place_of_tensors(world, tmp_path):
    folder = write_adapter(tmp_path / "adapter")
    other = write_adapter(tmp_path / "other", attention_modules(2))
    (folder / "more.safetensors").write_bytes((other / "adapter_model.safetensors").read_bytes())
    found = causes_of(effects_of(folder, TRITON, world / "model"))
    assert found[Fate.MISAPPLIED, Cause.FURTHER_FILE] == 15


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_that_is_judged_has_a_rule(cause):
    assert bool(TOLD_BY[cause]) is not cause.name.endswith(("NO_MODEL", "UNKNOWN"))


def test_what_the_pool_has_no_slot_for_is_refused(world):
    options = f"{TRITON} --lora-target-modules qkvr wo_ud"
    effects = effects_of(world / "adapters/released", options, world / "model")
    assert {e.cause for e in effects if e.fate is Fate.REFUSED} == {Cause.OUTSIDE_POOL}
