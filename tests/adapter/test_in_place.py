"""Conversion in place: what a new folder would hold, the payload where it was, and the way back."""

import shutil
import tempfile
from pathlib import Path

import pytest
from breaking_calls import BreakingCalls
from conversion import convert, payload, spec_of
from in_place_folders import (
    CONFIG,
    JOURNAL,
    SIZES,
    WEIGHTS,
    contents_of,
    inserts,
    plan_of,
    seen_by_engines,
    without_journal,
    write_source,
)

from factories import TINY
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.in_place.apply import apply_in_place
from inkling_runtime.adapter.in_place.room import BLOCK_BYTES
from inkling_runtime.adapter.in_place.undo import undo
from inkling_runtime.errors import InklingError

BULKY = {"note": "x" * 200_000}
"""Metadata that no header has room for."""


@pytest.fixture(params=["grows", "fits"])
def header(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "grows" and not inserts(tmp_path):
        pytest.skip("this file system inserts no bytes")
    return str(request.param)


@pytest.fixture
def growing(tmp_path: Path) -> Path:
    """A source whose header grows, on a file system where it can."""
    if not inserts(tmp_path):
        pytest.skip("this file system inserts no bytes")
    return write_source(tmp_path / "source")


def test_the_result_is_what_a_new_folder_would_hold(tmp_path: Path, header: str) -> None:
    source = write_source(tmp_path / "source", header)
    convert(source, "vllm", tmp_path / "new", spec_of(SIZES[header]))
    apply_in_place(plan_of(source, "vllm", header))
    assert seen_by_engines(source) == seen_by_engines(tmp_path / "new")
    assert read_adapter(source).dialect.name == "vllm"


def test_undo_gives_every_byte_back(tmp_path: Path, header: str) -> None:
    source = write_source(tmp_path / "source", header)
    before, inode = contents_of(source), (source / WEIGHTS).stat().st_ino
    apply_in_place(plan_of(source, "vllm", header))
    assert without_journal(contents_of(source)) != before
    undo(source)
    assert contents_of(source) == before
    assert (source / WEIGHTS).stat().st_ino == inode


def test_the_payload_stays_but_for_the_tensors_of_another_order(
    tmp_path: Path, header: str
) -> None:
    source = write_source(tmp_path / "source", header)
    before = payload(source)
    made = plan_of(source, "vllm", header)
    apply_in_place(made)
    after = payload(source)
    (patch,) = made.patches
    assert patch.tensor.name == "language_model.layers.0.mlp.gate_up_proj.lora_B.weight"
    start = patch.tensor.start - len(made.old_header)
    end = start + patch.tensor.nbytes
    assert (before[:start], before[end:]) == (after[:start], after[end:])
    assert before[start:end] != after[start:end]
    assert made.patched_bytes == end - start


def test_a_header_that_fits_keeps_the_size_and_one_that_grows_adds_whole_blocks(
    tmp_path: Path, header: str
) -> None:
    source = write_source(tmp_path / "source", header)
    size = (source / WEIGHTS).stat().st_size
    made = plan_of(source, "vllm", header)
    apply_in_place(made)
    grown = (source / WEIGHTS).stat().st_size - size
    assert grown == made.inserted_bytes == (0 if header == "fits" else BLOCK_BYTES)


def test_only_one_file_of_the_folder_ends_as_weights_do(growing: Path) -> None:
    apply_in_place(plan_of(growing, "vllm"))
    assert sorted(path.name for path in growing.iterdir()) == [CONFIG, WEIGHTS, JOURNAL]
    assert [path.name for path in growing.glob("*.safetensors")] == [WEIGHTS]


def test_modes_are_kept_and_the_journal_is_as_private_as_the_weights(growing: Path) -> None:
    (growing / CONFIG).chmod(0o664)
    (growing / WEIGHTS).chmod(0o600)
    apply_in_place(plan_of(growing, "vllm"))
    modes = {path.name: path.stat().st_mode & 0o777 for path in growing.iterdir()}
    assert modes == {CONFIG: 0o664, WEIGHTS: 0o600, JOURNAL: 0o600}


def test_a_folder_that_is_as_it_would_be_is_left_alone(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    before = contents_of(source)
    made = plan_of(source, "tinker")
    assert made.is_empty
    apply_in_place(made)
    assert contents_of(source) == before


def test_undo_goes_back_to_the_first_of_several_conversions(growing: Path) -> None:
    before = contents_of(growing)
    apply_in_place(plan_of(growing, "vllm"))
    apply_in_place(plan_of(growing, "sglang"))
    apply_in_place(plan_of(growing, "vllm", metadata=BULKY))
    assert seen_by_engines(growing) is not None
    assert len(contents_of(growing)[WEIGHTS]) > len(before[WEIGHTS]) + 200_000
    apply_in_place(plan_of(growing, "tinker"))
    undo(growing)
    assert contents_of(growing) == before


def test_every_step_of_a_chain_is_what_a_new_folder_would_hold(growing: Path) -> None:
    for number, target in enumerate(("sglang", "vllm", "tinker", "vllm")):
        out = growing.with_name(f"new-{number}")
        convert(growing, target, out, spec_of(TINY))
        apply_in_place(plan_of(growing, target))
        assert seen_by_engines(growing) == seen_by_engines(out)


def test_a_file_system_that_inserts_nothing_is_named_and_the_folder_stays(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    before = contents_of(source)
    made = plan_of(source, "vllm")
    with (
        BreakingCalls(is_linux=False).installed(),
        pytest.raises(InklingError, match="its file system cannot insert bytes") as caught,
    ):
        apply_in_place(made)
    assert f"convert-adapter {source} --to vllm -o OUT" in (caught.value.hint or "")
    assert contents_of(source) == before


def test_a_header_that_fits_needs_no_such_file_system(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", "fits")
    before = contents_of(source)
    with BreakingCalls(is_linux=False).installed():
        apply_in_place(plan_of(source, "vllm", "fits"))
        undo(source)
    assert contents_of(source) == before


def test_an_undo_that_cannot_take_the_room_out_leaves_the_conversion(growing: Path) -> None:
    apply_in_place(plan_of(growing, "vllm"))
    converted = contents_of(growing)
    with (
        BreakingCalls(is_linux=False).installed(),
        pytest.raises(InklingError, match="its file system cannot remove bytes"),
    ):
        undo(growing)
    assert contents_of(growing) == converted


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no tmpfs at /dev/shm")
def test_a_file_system_in_memory_is_named_and_the_folder_stays() -> None:
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        if inserts(folder):
            pytest.skip("/dev/shm inserts bytes")
        source = write_source(folder / "source")
        before = contents_of(source)
        with pytest.raises(InklingError, match="its file system cannot insert bytes"):
            apply_in_place(plan_of(source, "vllm"))
        assert contents_of(source) == before
    finally:
        shutil.rmtree(folder)
