"""What an adapter is, group by group, whether or not it is sound."""

from dataclasses import replace
from pathlib import Path

import forms
from conversion import spec_of

from factories import (
    TINY,
    Module,
    released_adapter_config,
    released_modules,
    write_adapter,
    write_released_adapter,
)
from inkling_runtime.adapter.adapter import read_adapter, sound_part
from inkling_runtime.adapter.arrays import CONTENTS
from inkling_runtime.adapter.inspection import GroupSummary, inspect_adapter
from inkling_runtime.adapter.site_pairs import HEADERS_ONLY
from inkling_runtime.adapter.sites import Group

SPEC = spec_of(TINY)


def groups_of(folder: Path) -> dict[Group, GroupSummary]:
    inspection = inspect_adapter(read_adapter(folder), SPEC, CONTENTS)
    return {summary.group: summary for summary in inspection.groups}


def test_groups_sum_up_to_the_file(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path)
    adapter, groups = read_adapter(source), groups_of(source)
    assert set(groups) == set(Group)
    assert sum(g.num_modules for g in groups.values()) == len(adapter.modules)
    assert sum(g.num_parameters for g in groups.values()) == adapter.num_parameters
    assert sum(g.nbytes for g in groups.values()) == 2 * adapter.num_parameters
    assert groups[Group.ATTENTION].layers == (0, 1, 2, 3)
    assert groups[Group.DENSE].layers == (0,)
    assert groups[Group.ROUTED].layers == (1, 2, 3)
    assert groups[Group.HEAD].layers == ()
    assert {g.ranks for g in groups.values()} == {(2,)}
    assert {g.scalings for g in groups.values()} == {(4.0,)}


def test_the_form_of_experts_is_told(tmp_path: Path) -> None:
    released = groups_of(write_released_adapter(tmp_path / "released"))
    assert released[Group.ROUTED].experts == "shared-outer, 3-D"
    assert released[Group.SHARED].experts == "shared-outer, flat 2-D"
    assert released[Group.HEAD].experts is None
    each = groups_of(write_released_adapter(tmp_path / "each", per_expert=True))
    assert each[Group.ROUTED].experts == "per expert, 3-D"
    modules = forms.peft_modules(TINY)
    config = forms.peft_config(modules, 2, 8)
    packed = groups_of(write_adapter(tmp_path / "peft", modules, config))
    assert packed[Group.ROUTED].experts == packed[Group.SHARED].experts == "packed (PEFT)"


def test_tied_factors_and_identical_copies_are_noticed(tmp_path: Path) -> None:
    apart = groups_of(write_released_adapter(tmp_path / "apart"))
    assert apart[Group.ROUTED].notes == ("gate and up have an A each",)
    tied = groups_of(write_released_adapter(tmp_path / "tied", edit=forms.tie_gates))
    assert tied[Group.ROUTED].notes == ("gate and up share one A",)
    modules = forms.cookbook_modules(TINY, {"routed"})
    folder = write_adapter(
        tmp_path / "copies", modules, released_adapter_config(), edit=forms.repeat_outer
    )
    assert any(
        "identical copies for every expert" in note
        for note in groups_of(folder)[Group.ROUTED].notes
    )


def test_coverage_names_what_is_missing_surplus_and_misfitting(tmp_path: Path) -> None:
    modules = released_modules(replace(TINY, layers=5), layers=[0, 1, 4])
    modules[0] = Module(modules[0].name, 41, TINY.query)
    source = write_adapter(tmp_path, modules, released_adapter_config())
    coverage = inspect_adapter(read_adapter(source), SPEC, HEADERS_ONLY).coverage
    assert coverage is not None
    assert {site.layer for site in coverage.surplus} == {4}
    assert {site.layer for site in coverage.missing} == {2, 3}
    assert [str(misfit.site) for misfit in coverage.misfits] == ["layers.0.attn.wq_du"]
    assert coverage.misfits[0].message == "A takes 41 features, the base model gives 40"


def test_an_adapter_that_cannot_be_decoded_is_still_described(tmp_path: Path) -> None:
    modules = forms.sglang_modules(TINY, {"attention"}, attention="qkvr")
    source = write_adapter(tmp_path, modules, forms.sglang_config(2, 8))
    inspection = inspect_adapter(read_adapter(source), None, HEADERS_ONLY)
    assert "fuses q, k, v and r" in (inspection.undecodable or "")
    assert len(inspection.sites) == 4 * 5
    assert [summary.num_modules for summary in inspection.groups] == [len(modules)]


def test_an_unsound_adapter_is_still_described(tmp_path: Path) -> None:
    def edit(tensors: dict) -> None:
        del tensors["language_model.layers.1.attn.wq_du.lora_A.weight"]
        tensors["other"] = tensors["language_model.lm_head.lora_A.weight"].clone()

    adapter = read_adapter(write_released_adapter(tmp_path, edit=edit))
    sound = sound_part(adapter)
    assert (sound.unknown, sound.problems) == ((), ())
    assert len(sound.modules) == len(adapter.modules) - 1
    assert inspect_adapter(adapter, SPEC, CONTENTS).undecodable is None
