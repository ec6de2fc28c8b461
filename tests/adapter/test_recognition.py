"""The dialect of a file is told from its names, its targets and the stamp of a conversion."""

import re
from dataclasses import replace
from pathlib import Path

import forms
import pytest
from conversion import convert, spec_of

from factories import (
    GROUPS,
    TINY,
    Module,
    released_adapter_config,
    released_modules,
    write_adapter,
    write_released_adapter,
)
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.dialects import (
    DIALECTS,
    STAMP,
    TARGETS,
    require_dialect,
    require_target,
)
from inkling_runtime.adapter.dialects.dialect import Dialect
from inkling_runtime.errors import InklingError

SPEC = spec_of(TINY)


def dialect_of(folder: Path) -> str:
    return read_adapter(folder).dialect.name


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("prefix", ["", "base_model.model."])
def test_each_part_of_the_released_schema_is_recognised(
    tmp_path: Path, group: str, prefix: str
) -> None:
    source = write_released_adapter(tmp_path, groups={group}, prefix=prefix)
    assert dialect_of(source) == "tinker"
    assert not read_adapter(source).unknown


def test_experts_one_by_one_with_a_prefix_are_the_released_schema(tmp_path: Path) -> None:
    modules = forms.cookbook_modules(TINY)
    source = write_adapter(tmp_path, modules, released_adapter_config())
    assert dialect_of(source) == "tinker"
    assert not read_adapter(source).unknown


def test_sink_experts_are_vllms(tmp_path: Path) -> None:
    modules = forms.vllm_modules(TINY)
    assert dialect_of(write_adapter(tmp_path, modules, forms.vllm_config(modules, 2, 8))) == "vllm"


@pytest.mark.parametrize(
    "options",
    [
        {"attention": "qkvr"},
        {"dense": "proj"},
        {"dense": "w"},
        {"routed": "proj"},
        {"routed": "fused"},
        {"shared": "stack"},
        {"head": "model.lm_head"},
    ],
    ids=str,
)
def test_names_that_only_sglang_takes_are_its_own(tmp_path: Path, options: dict) -> None:
    modules = forms.sglang_modules(TINY, **options)
    source = write_adapter(tmp_path, modules, forms.sglang_config(2, 8))
    assert dialect_of(source) == "sglang"
    assert not read_adapter(source, "sglang").unknown


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"routed": "w13", "shared": "shared_w13"},
        {"routed": "w", "shared": "w"},
        {"per_expert": True},
        {"root": "model."},
        {"root": "language_model."},
        {"head": "unembed"},
        {"head": "model.unembed_tokens", "head_rows": "padded"},
    ],
    ids=str,
)
@pytest.mark.parametrize("prefix", ["", "base_model.model."])
def test_names_of_the_raw_checkpoint_are_understood(
    tmp_path: Path, options: dict, prefix: str
) -> None:
    modules = [replace(m, name=prefix + m.name) for m in forms.raw_modules(TINY, **options)]
    adapter = read_adapter(write_adapter(tmp_path, modules, released_adapter_config()))
    assert adapter.dialect.name == "raw"
    assert not adapter.unknown
    assert not adapter.problems


@pytest.mark.parametrize("head", ["unembed", "unembed_tokens", "model.unembed_tokens"])
def test_other_names_of_the_head_are_understood_beside_the_released_ones(
    tmp_path: Path, head: str
) -> None:
    modules = [*released_modules(TINY, {"attention", "dense"}), Module(head, TINY.hidden, 60)]
    adapter = read_adapter(write_adapter(tmp_path, modules, released_adapter_config()))
    assert adapter.dialect.name == "tinker"
    assert not adapter.unknown


@pytest.mark.parametrize("dialect", ["peft-0.18", "peft-unsloth"])
def test_other_packings_are_read_where_they_are_named(tmp_path: Path, dialect: str) -> None:
    modules = forms.peft_modules(TINY)
    source = write_adapter(tmp_path, modules, forms.peft_config(modules, 2, 8))
    assert dialect_of(source) == "peft"
    adapter = read_adapter(source, dialect)
    assert adapter.dialect.name == dialect
    assert not adapter.unknown
    assert not adapter.problems


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("root", ["model.", "model.language_model."])
def test_each_part_of_a_peft_adapter_is_recognised(tmp_path: Path, group: str, root: str) -> None:
    modules = forms.peft_modules(TINY, {group}, root=root)
    source = write_adapter(tmp_path, modules, forms.peft_config(modules, 2, 8))
    assert dialect_of(source) == "peft"
    assert not read_adapter(source).unknown


@pytest.mark.parametrize("root", ["model.", "model.llm."])
def test_contiguous_rows_are_meant_where_no_name_is_vllms_alone(tmp_path: Path, root: str) -> None:
    modules = forms.vllm_modules(TINY, {"attention", "dense"}, root=root)
    source = write_adapter(tmp_path, modules, released_adapter_config())
    assert dialect_of(source) != "vllm"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("group", GROUPS)
def test_a_conversion_is_recognised_as_what_it_was_written_for(
    tmp_path: Path, target: str, group: str
) -> None:
    source = write_released_adapter(tmp_path / "source", groups={group})
    convert(source, target, tmp_path / "out", SPEC)
    adapter = read_adapter(tmp_path / "out")
    assert adapter.dialect.name == target
    assert adapter.file.metadata.get(STAMP, "tinker") == target


def test_an_unknown_stamp_is_ignored(tmp_path: Path) -> None:
    source = write_adapter(
        tmp_path,
        released_modules(TINY),
        released_adapter_config(),
        metadata={STAMP: "something else"},
    )
    assert dialect_of(source) == "tinker"


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(InklingError, match="`p9` is not a dialect, expected one of `tinker`"):
        require_dialect("p9")


def test_what_is_written_can_be_required_as_a_target() -> None:
    assert [require_target(name) for name in TARGETS] == list(TARGETS.values())


@pytest.mark.parametrize("name", sorted(set(DIALECTS) - set(TARGETS)))
def test_a_dialect_that_is_only_read_is_no_target(name: str) -> None:
    expected = f"`{name}` is a dialect that is only read, expected one of `tinker`, `vllm`, "
    with pytest.raises(InklingError, match=re.escape(expected)) as caught:
        require_target(name)
    assert caught.value.hint is not None
    assert DIALECTS[name].written_as in TARGETS
    assert not DIALECTS[name].written_rows()


@pytest.mark.parametrize("dialect", TARGETS.values(), ids=lambda d: d.name)
def test_every_written_row_is_read_back_as_itself(dialect: Dialect) -> None:
    for row in dialect.written_rows():
        layer = 7 if "{layer}" in row.template else -1
        expert = 3 if "{expert}" in row.template else -1
        for root in dialect.roots if layer >= 0 else (None,):
            name = dialect.format(row, layer, expert, root)
            parsed = dialect.parse(name, row.layout.ndim)
            assert parsed is not None
            assert (parsed.row, parsed.layer, parsed.expert) == (row, layer, expert)


@pytest.mark.parametrize("dialect", TARGETS.values(), ids=lambda d: d.name)
def test_every_written_kind_has_one_row_for_a_layout(dialect: Dialect) -> None:
    rows = [(row.layout, kind) for row in dialect.written_rows() for kind in row.kinds]
    assert len(set(rows)) == len(rows)
