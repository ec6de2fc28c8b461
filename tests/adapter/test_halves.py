"""Experts of which one factor stands once and the other one by one, as Megatron-Bridge has it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import forms
import pytest
import torch
from conversion import convert, payload, spec_of

from factories import (
    TINY,
    Module,
    released_adapter_config,
    released_modules,
    write_adapter,
    write_released_adapter,
)
from inkling_runtime.adapter.adapter import Adapter, read_adapter, require_understood, sound_part
from inkling_runtime.adapter.arrays import CONTENTS
from inkling_runtime.adapter.inspection import inspect_adapter
from inkling_runtime.adapter.site_pairs import HEADERS_ONLY, gather_pairs, gather_sound_pairs
from inkling_runtime.adapter.sites import Group, Site, SiteKind
from inkling_runtime.errors import InklingError

ROOT = "language_model.layers.1.mlp.experts."
GATE, DOWN = Site(1, SiteKind.ROUTED_GATE), Site(1, SiteKind.ROUTED_DOWN)
Edit = Callable[[dict[str, torch.Tensor]], None]


def write(folder: Path, *, names: str = "proj", ndim: int = 3, edit: Edit | None = None) -> Adapter:
    modules = forms.halves(released_modules(TINY), TINY, names=names, ndim=ndim)
    return read_adapter(write_adapter(folder, modules, released_adapter_config(), edit=edit))


def split(names: dict[str, str], ndim: int) -> Edit:
    """Return an edit that stores the released stacks in halves, with the same numbers."""

    def edit(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if ".experts." in name]:
            holder, projection, letter, _ = name.rsplit(".", 3)
            stack, new = tensors.pop(name), names[projection]
            if stack.shape[0] == 1:
                once = stack if ndim == 3 else stack[0]
                tensors[f"{holder}.{new}.{letter}.weight"] = once.clone()
                continue
            for e, one in enumerate(stack):
                tensors[f"{holder}.{e}.{new}.{letter}.weight"] = one.clone()

    return edit


@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize("names", [forms.PROJECTIONS, {n: n for n in forms.PROJECTIONS}])
def test_halves_become_the_released_stacks_to_the_bit(
    tmp_path: Path, names: dict[str, str], ndim: int
) -> None:
    released = write_released_adapter(tmp_path / "released")
    source = write_released_adapter(tmp_path / "source", edit=split(names, ndim))
    convert(source, "tinker", tmp_path / "out", spec_of(TINY))
    assert payload(tmp_path / "out") == payload(released)


@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize("names", ["proj", "w"])
def test_halves_are_recognised_and_sound(tmp_path: Path, names: str, ndim: int) -> None:
    adapter = write(tmp_path, names=names, ndim=ndim)
    assert not adapter.unknown
    assert not adapter.problems
    assert sound_part(adapter).modules == adapter.modules
    pairs = gather_pairs(adapter, None, HEADERS_ONLY)
    assert pairs[GATE].is_shared_outer
    assert pairs[DOWN].is_shared_outer
    assert pairs[GATE].experts == TINY.experts


def test_an_inspection_counts_each_factor_once_and_says_how_they_lie(tmp_path: Path) -> None:
    adapter = write(tmp_path / "halves")
    stacks = read_adapter(write_released_adapter(tmp_path / "stacks"))
    found, expected = (
        next(g for g in inspect_adapter(a, None, CONTENTS).groups if g.group is Group.ROUTED)
        for a in (adapter, stacks)
    )
    assert found.experts == "shared-outer, the other factor per expert"
    assert found.num_parameters == expected.num_parameters
    assert found.nbytes == expected.nbytes
    assert found.num_modules == 3 * 3 * (TINY.experts + 1)


def drop(name: str) -> Edit:
    def edit(tensors: dict[str, torch.Tensor]) -> None:
        del tensors[ROOT + name]

    return edit


def put(name: str, *shape: int) -> Edit:
    return lambda tensors: tensors.update({ROOT + name: torch.zeros(shape, dtype=torch.bfloat16)})


@pytest.mark.parametrize(
    ("edit", "kind", "message"),
    [
        (put("gate_proj.lora_A.weight", 5, 2, 40), "shape", "holds 5 experts, expected 1"),
        (put("gate_proj.lora_A.weight", 40), "shape", "has 1 dimensions, expected 2 or 3"),
        (put("3.gate_proj.lora_B.weight", 1, 11, 2), "shape", "has 3 dimensions, expected 2"),
        (put("gate_proj.lora_A.weight", 1, 0, 40), "shape", "is [1, 0, 40]: empty"),
        (put("gate_proj.lora_A.weight", 1, 3, 40), "rank", "rank 3, the config says 2"),
        (put("3.gate_proj.lora_B.weight", 11, 3), "rank", "rank 3, the config says 2"),
    ],
)
def test_a_half_that_cannot_be_one_is_a_problem(
    tmp_path: Path, edit: Edit, kind: str, message: str
) -> None:
    adapter = write(tmp_path, edit=edit)
    (problem,) = adapter.problems
    assert problem.kind == kind
    assert message in problem.message
    pairs, _ = gather_sound_pairs(adapter, None)
    assert GATE not in pairs or "3.gate_proj" in problem.module


def test_a_half_without_floats_is_a_problem(tmp_path: Path) -> None:
    def edit(tensors: dict[str, torch.Tensor]) -> None:
        name = f"{ROOT}gate_proj.lora_A.weight"
        tensors[name] = tensors[name].to(torch.int8)

    (problem,) = write(tmp_path, edit=edit).problems
    assert problem.kind == "dtype"


def test_the_other_sites_stay_sound_when_a_shared_half_is_not(tmp_path: Path) -> None:
    adapter = write(tmp_path, edit=put("gate_proj.lora_A.weight", 1, 3, 40))
    pairs, undecodable = gather_sound_pairs(adapter, None)
    assert undecodable is None
    assert GATE not in pairs
    assert DOWN in pairs


def test_halves_that_nothing_completes_lack_a_factor(tmp_path: Path) -> None:
    problems = write(tmp_path, edit=drop("gate_proj.lora_A.weight")).problems
    assert {problem.kind for problem in problems} == {"missing-factor"}
    assert len(problems) == TINY.experts


def test_a_whole_stack_beside_halves_adapts_the_same_weights(tmp_path: Path) -> None:
    modules = forms.halves(released_modules(TINY), TINY)
    modules.append(Module(f"{ROOT}w1", TINY.hidden, TINY.inner, 1, TINY.experts))
    adapter = read_adapter(write_adapter(tmp_path, modules, released_adapter_config()))
    assert [problem.kind for problem in adapter.problems] == ["twice"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (drop("2.gate_proj.lora_B.weight"), "holds 4 of 5 experts"),
        (put("2.gate_proj.lora_B.weight", 12, 2), "differ in shape, dtype or scaling"),
    ],
)
def test_experts_that_do_not_make_a_stack_are_refused(
    tmp_path: Path, edit: Edit, message: str
) -> None:
    adapter = write(tmp_path, edit=edit)
    require_understood(adapter)
    with pytest.raises(InklingError, match=message):
        gather_pairs(adapter, spec_of(TINY), HEADERS_ONLY)


def test_a_pattern_that_scales_a_half_otherwise_is_refused(tmp_path: Path) -> None:
    modules = [
        replace(m, name=m.name.replace("language_model.", "model."))
        for m in forms.halves(released_modules(TINY, {"routed"}), TINY)
    ]
    config = released_adapter_config(alpha_pattern={r"experts\.gate_proj": 2})
    adapter = read_adapter(write_adapter(tmp_path, modules, config))
    with pytest.raises(InklingError, match="differ in shape, dtype or scaling"):
        gather_pairs(adapter, None, HEADERS_ONLY)
