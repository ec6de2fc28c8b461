"""Writing: the target is absent or whole, whatever happens, and nothing is left beside it."""

import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conversion import plan, spec_of

from factories import TINY, write_released_adapter
from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.convert.write import write_conversion
from inkling_runtime.adapter.new_folder import require_new
from inkling_runtime.errors import InklingError

WEIGHTS = "adapter_model.safetensors"
SOURCE_FILES = ["adapter_config.json", WEIGHTS]
FILES = [*SOURCE_FILES, "conversion.json"]


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A folder that holds the source adapter and nothing else."""
    write_released_adapter(tmp_path / "source")
    os.utime(tmp_path / "source" / WEIGHTS, (0, 0))  # so that any change shows, at once too
    return tmp_path


@pytest.fixture
def conversion(room: Path) -> Conversion:
    return plan(room / "source", "vllm", spec_of(TINY))


@pytest.fixture
def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_written_folder_holds_both_files_and_has_no_sibling(
    room: Path, conversion: Conversion
) -> None:
    seen: list[int] = []
    write_conversion(conversion, room / "out", progress=seen.append)
    assert names_in(room) == ["out", "source"]
    assert names_in(room / "out") == FILES
    assert sum(seen) == conversion.nbytes
    header = (room / "out" / WEIGHTS).read_bytes()[:8]
    size = (room / "out" / WEIGHTS).stat().st_size
    assert size == 8 + int.from_bytes(header, "little") + conversion.nbytes


def test_an_existing_target_is_left_alone(room: Path, conversion: Conversion) -> None:
    (room / "out").mkdir()
    (room / "out" / "mine.txt").write_text("mine")
    with pytest.raises(InklingError, match="exists") as caught:
        write_conversion(conversion, room / "out")
    assert "--overwrite" in (caught.value.hint or "")
    assert names_in(room / "out") == ["mine.txt"]
    (room / "file").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(InklingError, match="is a file, expected a folder to be made"):
            write_conversion(conversion, room / "file", overwrite=overwrite)
    assert names_in(room) == ["file", "out", "source"]


def test_the_source_is_never_the_target(room: Path, conversion: Conversion) -> None:
    (room / "link").symlink_to(room / "source")
    before = contents_of(room / "source")
    for out in (room / "source", room / "link", room / "source" / ".." / "source"):
        with pytest.raises(InklingError, match=r"is the folder .* that is being read"):
            write_conversion(conversion, out, overwrite=True)
    assert contents_of(room / "source") == before


def test_a_folder_around_the_source_is_never_the_target(tmp_path: Path) -> None:
    source = write_released_adapter(tmp_path / "outer" / "source")
    before = contents_of(source)
    with pytest.raises(InklingError):
        write_conversion(plan(source, "vllm", spec_of(TINY)), tmp_path / "outer", overwrite=True)
    assert contents_of(source) == before


def test_a_missing_parent_is_refused(room: Path, conversion: Conversion) -> None:
    with pytest.raises(InklingError, match="does not exist") as caught:
        write_conversion(conversion, room / "absent" / "out")
    assert caught.value.hint == "make the folder first"
    assert names_in(room) == ["source"]


def test_a_link_to_itself_is_no_place(room: Path, conversion: Conversion) -> None:
    (room / "loop").symlink_to("loop")
    with pytest.raises(InklingError, match="loop` is a link, expected a folder to be made"):
        write_conversion(conversion, room / "loop")
    with pytest.raises(InklingError, match="loop` does not exist"):
        write_conversion(conversion, room / "loop" / "out")


def test_a_name_that_no_file_system_takes_is_refused(room: Path, conversion: Conversion) -> None:
    for name in ("x" * 300, "x" * 250):
        with pytest.raises(InklingError):
            write_conversion(conversion, room / name)
    assert names_in(room) == ["source"]


def test_overwriting_replaces_the_whole_folder(room: Path, conversion: Conversion) -> None:
    (room / "out").mkdir()
    (room / "out" / "stale.txt").write_text("stale")
    with pytest.raises(
        InklingError, match=r"holds no `adapter_config.json`, so it is not replaced"
    ):
        write_conversion(conversion, room / "out", overwrite=True)
    assert names_in(room / "out") == ["stale.txt"]
    (room / "out" / "adapter_config.json").write_text("stale")
    write_conversion(conversion, room / "out", overwrite=True)
    assert names_in(room / "out") == FILES
    assert names_in(room) == ["out", "source"]
    write_conversion(conversion, room / "out", overwrite=True)
    assert names_in(room) == ["out", "source"]


def test_overwriting_a_link_leaves_its_target_and_no_sibling(
    room: Path, conversion: Conversion
) -> None:
    (room / "real").mkdir()
    (room / "real" / "mine.txt").write_text("mine")
    (room / "out").symlink_to(room / "real")
    try:
        write_conversion(conversion, room / "out", overwrite=True)
    except InklingError:
        assert (room / "out").is_symlink()
    assert names_in(room) == ["out", "real", "source"]
    assert "mine.txt" in names_in(room / "real") or names_in(room / "real") == FILES


@pytest.mark.parametrize("moment", [1, 20])
def test_an_interrupt_leaves_everything_as_it_was(
    room: Path, conversion: Conversion, moment: int
) -> None:
    (room / "out").mkdir()
    (room / "out" / "adapter_config.json").write_text("mine")
    calls = []

    def progress(nbytes: int) -> None:
        calls.append(nbytes)
        assert names_in(room / "out") == ["adapter_config.json"]
        if len(calls) == moment:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_conversion(conversion, room / "out", overwrite=True, progress=progress)
    assert names_in(room) == ["out", "source"]
    assert names_in(room / "out") == ["adapter_config.json"]


def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(
    room: Path, conversion: Conversion, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(room)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(InklingError, match="the disk has 10 bytes free"):
        write_conversion(conversion, room / "out")
    assert names_in(room) == ["source"]


@pytest.mark.parametrize("name", ["out", "out[1]", "o*t"])
def test_what_a_killed_process_left_is_removed(
    room: Path, conversion: Conversion, dead_pid: int, name: str
) -> None:
    for kind in ("tmp", "old"):
        left = room / f".{name}.{kind}-{dead_pid}"
        left.mkdir()
        (left / "part").write_bytes(b"x")
    write_conversion(conversion, room / name)
    assert names_in(room) == sorted([name, "source"])


def test_what_a_killed_exchange_had_moved_away_stays_until_there_is_a_new_folder(
    room: Path, conversion: Conversion, dead_pid: int
) -> None:
    old = room / f".out.old-{dead_pid}"
    old.mkdir()
    (old / "mine.txt").write_text("mine")

    def progress(nbytes: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_conversion(conversion, room / "out", progress=progress)
    (kept,) = room.rglob("mine.txt")
    assert kept.read_text() == "mine"


def test_what_a_process_of_our_number_left_is_removed(room: Path, conversion: Conversion) -> None:
    left = room / f".out.tmp-{os.getpid()}"
    left.mkdir()
    (left / "part").write_bytes(b"x")
    write_conversion(conversion, room / "out")
    assert names_in(room) == ["out", "source"]
    assert names_in(room / "out") == FILES


@pytest.mark.parametrize("overwrite", [False, True])
def test_of_two_runs_at_a_time_the_second_is_refused_and_the_first_goes_on(
    room: Path, conversion: Conversion, overwrite: bool
) -> None:
    refused = []

    def progress(nbytes: int) -> None:
        if not refused:
            with pytest.raises(InklingError, match="is being written by another process") as caught:
                write_conversion(conversion, room / "out", overwrite=overwrite)
            refused.append(caught.value)

    write_conversion(conversion, room / "out", overwrite=overwrite, progress=progress)
    assert refused
    assert names_in(room / "out") == FILES
    assert names_in(room) == ["out", "source"]


def test_what_is_named_otherwise_is_left_alone(room: Path, conversion: Conversion) -> None:
    others = [".out.tmp-x", ".out.tmp-١", ".out.tmp", ".outer.tmp-1", f".out.old-{os.getppid()}"]
    for name in others:
        (room / name).mkdir()
    (room / ".out.tmp-1").symlink_to(room / "source")
    write_conversion(conversion, room / "out")
    assert names_in(room) == sorted([*others, ".out.tmp-1", "out", "source"])
    assert names_in(room / "source") == SOURCE_FILES


def test_without_locks_what_a_living_process_writes_is_left_alone(
    room: Path, conversion: Conversion, dead_pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    living = [f".out.tmp-{os.getppid()}", ".out.tmp-99999999999999999999"]
    for name in (*living, f".out.tmp-{dead_pid}"):
        (room / name).mkdir()
    write_conversion(conversion, room / "out")
    assert names_in(room) == sorted([*living, "out", "source"])


def once(act: Callable[[], object]) -> Callable[[int], None]:
    """Return a progress that acts when it is first called."""
    called: list[int] = []

    def progress(nbytes: int) -> None:
        called.append(nbytes)
        if len(called) == 1:
            act()

    return progress


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("mine", [[], ["mine.txt"]])
def test_a_target_that_appears_meanwhile_is_left_alone(
    room: Path, conversion: Conversion, mine: list[str], overwrite: bool
) -> None:
    def appear() -> None:
        (room / "out").mkdir()
        for name in mine:
            (room / "out" / name).write_text("mine")

    with pytest.raises(InklingError, match="was made by another process meanwhile"):
        write_conversion(conversion, room / "out", overwrite=overwrite, progress=once(appear))
    assert names_in(room / "out") == mine
    assert names_in(room) == ["out", "source"]


def test_a_target_that_is_not_the_one_to_be_replaced_is_left_alone(
    room: Path, conversion: Conversion
) -> None:
    out = room / "out"
    write_conversion(conversion, out)

    def swap() -> None:
        out.rename(room / "moved")
        out.mkdir()
        (out / "mine.txt").write_text("mine")

    with pytest.raises(InklingError, match="was made by another process meanwhile"):
        write_conversion(conversion, out, overwrite=True, progress=once(swap))
    assert names_in(out) == ["mine.txt"]
    assert names_in(room) == ["moved", "out", "source"]


def test_a_target_that_is_moved_away_meanwhile_is_kept(room: Path, conversion: Conversion) -> None:
    out = room / "out"
    write_conversion(conversion, out)
    act = once(lambda: out.rename(room / "moved"))
    write_conversion(conversion, out, overwrite=True, progress=act)
    assert names_in(out) == names_in(room / "moved") == FILES
    assert names_in(room) == ["moved", "out", "source"]


def test_a_parent_that_vanishes_meanwhile_is_an_error(room: Path, conversion: Conversion) -> None:
    (room / "parent").mkdir()
    act = once(lambda: shutil.rmtree(room / "parent"))
    with pytest.raises(InklingError, match=r"`.*parent/.*` does not exist"):
        write_conversion(conversion, room / "parent" / "out", progress=act)
    assert names_in(room) == ["source"]


def test_a_parent_may_be_a_link(room: Path, conversion: Conversion) -> None:
    (room / "real").mkdir()
    (room / "link").symlink_to(room / "real")
    for overwrite in (False, True):
        write_conversion(conversion, room / "link" / "out", overwrite=overwrite)
    assert names_in(room) == ["link", "real", "source"]
    assert names_in(room / "real") == ["out"]


def test_a_folder_that_cannot_be_flushed_is_written_all_the_same(
    room: Path, conversion: Conversion, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    for overwrite in (False, True):
        write_conversion(conversion, room / "out", overwrite=overwrite)
    assert names_in(room / "out") == FILES


def test_a_mount_point_is_refused() -> None:
    with pytest.raises(InklingError, match="`/proc` is a mount point"):
        require_new(Path("/proc"), overwrite=True, marker="self")


@pytest.mark.parametrize("what", ["gone", "shorter", "rewritten"])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_source_that_changes_after_it_was_planned_is_named(
    room: Path, conversion: Conversion, what: str, when: str
) -> None:
    weights = room / "source" / WEIGHTS

    def change() -> None:
        data = weights.read_bytes()
        if what == "gone":
            weights.unlink()
        elif what == "shorter":
            os.truncate(weights, len(data) - 1)
        else:
            weights.write_bytes(data[:-1] + b"x")

    if when == "before":
        change()
    with pytest.raises(InklingError) as caught:
        write_conversion(
            conversion, room / "out", progress=once(change if when == "meanwhile" else lambda: None)
        )
    assert str(weights) in caught.value.message
    assert names_in(room) == ["source"]
