"""Where names leave two readings of packed factors: what decides, and what asks."""

from pathlib import Path
from typing import Any

import forms
import pytest
from conversion import convert, spec_of

from factories import SQUARE, TINY, Module, Sizes, write_adapter, write_released_adapter
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.ambiguity import Ambiguity, ambiguity_of
from inkling_runtime.adapter.model_spec import ModelSpec

ALL = forms.PARAMETERS
GATE_UP = {"experts": ("gate_up_proj",), "shared_experts": ()}
SHARED_GATE = {"experts": (), "shared_experts": ("gate_proj",)}
OLD, NEW = ("peft", "peft-0.18"), None
UNSLOTH = {"auto_mapping": {"unsloth_fixed": True}}


def peft_modules(sizes: Sizes = TINY, *groups: str, parameters: Any = ALL) -> list[Module]:
    return forms.peft_modules(sizes, groups or {"routed", "shared"}, parameters=parameters)


def readings(
    folder: Path, modules: list[Module], spec: ModelSpec | None = None, rank: int = 2, **config: Any
) -> tuple[str, ...] | None:
    """Return the dialects to choose from; `peft_version=None` leaves the key out."""
    values = forms.peft_config(modules, rank, 8, **config)
    values = {key: value for key, value in values.items() if value is not None}
    found = ambiguity_of(read_adapter(write_adapter(folder, modules, values)), spec)
    return None if found is None else found.readings


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.21.2", NEW),
        ("0.19.1", NEW),
        ("0.20.0.dev0", NEW),
        ("1.0", NEW),
        ("0.19.1.post1", NEW),
        ("0.19.0", OLD),
        ("0.19", OLD),
        ("0.18.1", OLD),
        ("0.19.1.dev0", OLD),
        ("0.19.1rc1", OLD),
        ("main", OLD),
        (19, OLD),
        (None, OLD),
    ],
)
def test_the_version_decides_where_widths_do_not(
    tmp_path: Path, version: object, expected: tuple | None
) -> None:
    modules = peft_modules(parameters=GATE_UP)
    assert readings(tmp_path, modules, peft_version=version) == expected


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("modules", "spec"),
    [
        (peft_modules(TINY, "routed"), None),
        (peft_modules(TINY, "attention", "routed", parameters=GATE_UP), None),
        (peft_modules(TINY, "head", "shared", parameters=SHARED_GATE), None),
        (peft_modules(TINY, "routed", parameters=GATE_UP), spec_of(TINY)),
        (peft_modules(TINY, "shared", parameters=SHARED_GATE), spec_of(TINY)),
        (peft_modules(SQUARE, "routed"), None),
    ],
    ids=["gate and down", "attention", "head", "model", "model and shared", "square gate"],
)
@pytest.mark.parametrize("version", [None, "0.18.0", "0.21.2"])
def test_widths_that_fit_one_reading_decide(
    tmp_path: Path, modules: list[Module], spec: ModelSpec | None, swapped: bool, version: object
) -> None:
    """In and out exchanged, the older reading is the only one, whatever the version says."""
    modules = forms.swap_packed(modules) if swapped else modules
    expected = ("peft-0.18",) if swapped else None
    assert readings(tmp_path, modules, spec, peft_version=version) == expected


@pytest.mark.parametrize("spec", [None, spec_of(SQUARE)])
def test_a_square_parameter_fits_both_readings(tmp_path: Path, spec: ModelSpec | None) -> None:
    modules = peft_modules(SQUARE, "attention", "routed", parameters=GATE_UP)
    assert readings(tmp_path / "a", modules, spec, peft_version="0.18.0") == OLD
    assert readings(tmp_path / "b", modules, spec, peft_version="0.19.1") is None


def test_contradicting_widths_leave_it_to_the_version(tmp_path: Path) -> None:
    modules = [*peft_modules(), Module("base_model.model.lm_head", TINY.hidden + 1, TINY.vocab)]
    assert readings(tmp_path, modules, peft_version="0.18.0") == OLD


@pytest.mark.parametrize("mapping", [None, {}, {"unsloth_fixed": False}, [], "unsloth_fixed"])
def test_unsloth_is_told_by_its_own_mark(tmp_path: Path, mapping: object) -> None:
    expected = ("peft", "peft-unsloth")
    assert readings(tmp_path / "a", peft_modules(), **UNSLOTH) == expected
    assert readings(tmp_path / "b", peft_modules(), auto_mapping=mapping) is None


def test_at_rank_one_unsloth_packs_as_peft_does(tmp_path: Path) -> None:
    assert readings(tmp_path, peft_modules(), rank=1, **UNSLOTH) is None


def test_without_packed_parameters_nothing_is_asked(tmp_path: Path) -> None:
    modules = peft_modules(TINY, "attention", "dense", "head")
    assert readings(tmp_path, modules, peft_version=None, **UNSLOTH) is None


@pytest.mark.parametrize("target", ["peft", "tinker"])
def test_our_own_conversions_are_certain(tmp_path: Path, target: str) -> None:
    source = write_released_adapter(tmp_path / "source", SQUARE, config={"peft_version": "0.18.0"})
    convert(source, target, tmp_path / "out", spec_of(SQUARE))
    assert ambiguity_of(read_adapter(tmp_path / "out"), None) is None


def test_the_reason_names_the_adapter_a_module_and_what_its_config_says(tmp_path: Path) -> None:
    modules = peft_modules(parameters=GATE_UP)
    config = forms.peft_config(modules, 2, 8, peft_version="0.18.0")
    found = ambiguity_of(read_adapter(write_adapter(tmp_path, modules, config)), None)
    assert found == Ambiguity(
        f"the config of `{tmp_path}` has peft_version '0.18.0': PEFT before 0.19.1 packs 3-D "
        f"parameters (`{modules[0].name}`) with in and out exchanged, and the widths do not tell",
        OLD,
    )
