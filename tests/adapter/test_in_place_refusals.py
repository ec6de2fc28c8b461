"""What is not done in place, and why: said before anything changes, with the way that works."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conversion import plan
from in_place_folders import (
    CONFIG,
    JOURNAL,
    WEIGHTS,
    contents_of,
    conversion_of,
    plan_of,
    put_back,
    without_journal,
    write_source,
)

from factories import (
    TINY,
    Sizes,
    released_adapter_config,
    released_modules,
    write_released_adapter,
    write_sparse_adapter,
)
from inkling_runtime.adapter.in_place.apply import apply_in_place
from inkling_runtime.adapter.in_place.plan import plan_in_place
from inkling_runtime.adapter.in_place.room import BLOCK_BYTES
from inkling_runtime.adapter.in_place.undo import Recovery, is_interrupted, recover, undo
from inkling_runtime.adapter.in_place.weights import open_for_change
from inkling_runtime.errors import InklingError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path / "source", "fits")


@pytest.fixture
def converted(source: Path) -> Path:
    """A folder after its conversion."""
    apply_in_place(plan_of(source, "vllm", "fits"))
    return source


def refusal_of(folder: Path, target: str = "vllm", room: str = "fits") -> InklingError:
    """Return why a folder is not converted in place; it must be as it was."""
    before = contents_of(folder)
    with pytest.raises(InklingError) as caught:
        plan_of(folder, target, room)
    assert contents_of(folder) == before
    return caught.value


def test_a_target_that_moves_payload_is_refused_with_names_and_the_way(source: Path) -> None:
    refused = refusal_of(source, "peft")
    assert "tensors of the result are not one whole tensor of" in refused.message
    assert "`base_model.model.lm_head.lora_B.weight`" in refused.message
    assert "join" in refused.message
    assert refused.hint is not None
    assert f"`inkling convert-adapter {source} --to peft -o OUT`" in refused.hint


def test_tensors_that_the_result_leaves_out_are_named(tmp_path: Path) -> None:
    def add_copy(tensors: dict[str, torch.Tensor]) -> None:
        tensors["language_model.lm_head.base_layer.weight"] = torch.zeros(3, 5)

    folder = write_released_adapter(tmp_path / "source", edit=add_copy)
    refused = refusal_of(folder, room="grows")
    assert "leaves out `language_model.lm_head.base_layer.weight`" in refused.message


def test_more_changed_numbers_than_the_journal_holds_are_refused(tmp_path: Path) -> None:
    sizes = Sizes(hidden=4, layers=1, dense=6_000_000)
    modules = released_modules(sizes, ["dense"])
    folder = write_sparse_adapter(tmp_path / "source", modules, released_adapter_config(3))
    with pytest.raises(InklingError, match="72,000,000 bytes of numbers change") as caught:
        plan_in_place(plan(folder, "vllm", None))
    assert "expected at most 67,108,864 in place" in caught.value.message


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
def test_a_link_into_a_cache_is_refused_since_others_have_its_bytes(
    source: Path, name: str
) -> None:
    blob = source.with_name("blob")
    (source / name).rename(blob)
    (source / name).symlink_to(blob)
    refused = refusal_of(source)
    assert f"`{source / name}` is a link to `{blob}`" in refused.message
    assert "-o OUT" in (refused.hint or "")


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
def test_a_file_with_a_second_name_is_refused(source: Path, name: str) -> None:
    source.with_name("other").hardlink_to(source / name)
    refused = refusal_of(source)
    assert f"`{source / name}` has 2 names (hard links)" in refused.message


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
def test_a_read_only_file_is_refused(source: Path, name: str) -> None:
    (source / name).chmod(0o444)
    assert f"`{source / name}` is read-only" in refusal_of(source).message


def test_a_file_that_the_system_does_not_open_for_writing_is_named(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversion, real = conversion_of(source, "vllm", "fits"), os.open

    def refuse(path: str, flags: int, *args: int, **kwargs: int) -> int:
        if flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied")
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(InklingError, match="cannot be changed: Permission denied"):
        plan_in_place(conversion)


def test_a_folder_that_another_process_changes_is_refused(source: Path) -> None:
    with (
        open_for_change(source),
        pytest.raises(InklingError, match="is being changed by another process"),
    ):
        plan_of(source, "vllm", "fits")


def test_a_folder_that_changed_while_it_was_planned_is_refused(source: Path) -> None:
    conversion = conversion_of(source, "vllm", "fits")
    write_source(source, "grows")
    with pytest.raises(InklingError, match="changed while its conversion was planned"):
        plan_in_place(conversion)


def test_a_config_that_changed_while_it_was_planned_is_refused(source: Path) -> None:
    conversion = conversion_of(source, "vllm", "fits")
    change_config(source)
    with pytest.raises(InklingError, match=f"{CONFIG}` changed while its conversion was planned"):
        plan_in_place(conversion)


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
def test_a_folder_that_changed_since_its_plan_is_refused(source: Path, name: str) -> None:
    made = plan_of(source, "vllm", "fits")
    data = (source / name).read_bytes()
    (source / name).write_bytes(data.replace(b"lora", b"LORA") + b" ")
    before = contents_of(source)
    with pytest.raises(InklingError, match="changed since its conversion was planned"):
        apply_in_place(made)
    assert contents_of(source) == before


def test_a_conversion_of_several_files_is_refused(source: Path) -> None:
    conversion = conversion_of(source, "vllm", "fits")
    moved = replace(conversion.source.file, path=source / "adapter_model.safetensors.index.json")
    sharded = replace(conversion, source=replace(conversion.source, file=moved))
    with pytest.raises(InklingError, match="holds its tensors in several files"):
        plan_in_place(sharded)


def test_nothing_is_undone_where_nothing_was_done(source: Path) -> None:
    before = contents_of(source)
    with pytest.raises(InklingError, match=f"holds no `{JOURNAL}`"):
        undo(source)
    assert recover(source) is Recovery.NOTHING
    assert not is_interrupted(source)
    assert contents_of(source) == before


def change_header(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data.replace(b"sink_experts", b"SINK_experts", 1))


def change_size(folder: Path) -> None:
    with (folder / WEIGHTS).open("ab") as file:
        file.write(b"more")


def change_numbers(folder: Path) -> None:
    data = bytearray((folder / WEIGHTS).read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    data[start:] = bytes(byte ^ 1 for byte in data[start:])
    (folder / WEIGHTS).write_bytes(data)


def change_config(folder: Path) -> None:
    values = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(values | {"mine": 1}))


CHANGES = {
    "bytes, expected": change_size,
    "has a header with the SHA-256": change_header,
    f"{CONFIG}` has the SHA-256": change_config,
    "has other numbers where the conversion wrote": change_numbers,
}


@pytest.mark.parametrize("said", CHANGES)
def test_a_folder_that_somebody_changed_since_is_not_undone(converted: Path, said: str) -> None:
    CHANGES[said](converted)
    before = contents_of(converted)
    with pytest.raises(InklingError) as caught:
        undo(converted)
    assert said in caught.value.message
    assert "it changed since the conversion" in caught.value.message
    assert f"remove `{converted / JOURNAL}`" in (caught.value.hint or "")
    assert not is_interrupted(converted)
    assert recover(converted) is Recovery.NOTHING
    assert contents_of(converted) == before


def test_a_folder_that_somebody_changed_since_is_not_converted_again(converted: Path) -> None:
    change_config(converted)
    before = contents_of(converted)
    made = plan_of(converted, "tinker", "fits")
    with pytest.raises(InklingError, match="is not as the conversion in its") as caught:
        apply_in_place(made)
    assert f"remove `{converted / JOURNAL}`" in (caught.value.hint or "")
    assert contents_of(converted) == before
    (converted / JOURNAL).unlink()
    apply_in_place(made)
    undo(converted)
    assert contents_of(converted) == without_journal(before)


def test_bytes_that_nobody_can_place_are_never_removed(converted: Path) -> None:
    with (converted / WEIGHTS).open("ab") as file:
        file.write(b"x" * BLOCK_BYTES)
    before = contents_of(converted)
    for act in (undo, recover):
        with pytest.raises(InklingError, match="65536 bytes longer than its header says"):
            act(converted)
        assert contents_of(converted) == before


def test_a_broken_or_strange_journal_is_an_error_that_names_it(converted: Path) -> None:
    whole = (converted / JOURNAL).read_bytes()
    weights = (converted / WEIGHTS).read_bytes()
    strange = [whole[:size] for size in (0, 7, 8, 100, len(whole) // 2, len(whole) - 1)]
    strange += [weights, whole.replace(b'"inkling.payload_bytes":"', b'"inkling.payload_bytes":"-')]
    strange += [whole.replace(b"converted.payload.", b"converted.payloax.")]
    strange += [whole.replace(b'"original.header"', b'"original.headex"')]
    for data in strange:
        (converted / JOURNAL).write_bytes(data)
        before = contents_of(converted)
        for act in (undo, recover, is_interrupted):
            with pytest.raises(InklingError, match=JOURNAL) as caught:
                act(converted)
            assert caught.value.hint == "remove it if you do not know it"
        assert contents_of(converted) == before


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG, JOURNAL])
def test_a_pipe_is_named_and_not_waited_for(converted: Path, name: str) -> None:
    (converted / name).unlink()
    os.mkfifo(converted / name)
    for act in (undo, recover, is_interrupted):
        with pytest.raises(InklingError, match=f"{name}` is not a regular file"):
            act(converted)


def test_a_folder_in_the_place_of_the_weights_is_named(converted: Path) -> None:
    (converted / WEIGHTS).unlink()
    (converted / WEIGHTS).mkdir()
    with pytest.raises(InklingError, match=f"{WEIGHTS}` cannot be read: Is a directory"):
        is_interrupted(converted)


def test_a_journal_of_another_adapter_changes_nothing(tmp_path: Path, converted: Path) -> None:
    other = write_released_adapter(tmp_path / "other", TINY)
    put_back(other, contents_of(other) | {JOURNAL: (converted / JOURNAL).read_bytes()})
    before = contents_of(other)
    with pytest.raises(InklingError, match="it changed since the conversion"):
        undo(other)
    assert contents_of(other) == before
