"""Writing: the target is absent or whole, whatever happens, and nothing is left beside it."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conversion import plan, spec_of

from factories import TINY, write_released_adapter
from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.convert.write import write_conversion
from inkling_runtime.errors import InklingError

FILES = ["adapter_config.json", "adapter_model.safetensors"]


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A folder that holds the source adapter and nothing else."""
    write_released_adapter(tmp_path / "source")
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
    header = (room / "out" / FILES[1]).read_bytes()[:8]
    size = (room / "out" / FILES[1]).stat().st_size
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
        with pytest.raises(InklingError, match="is the adapter that is being read"):
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


class FailingWrites:
    """Replaces `open` of a file by one whose n-th write fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, countdown: int, error: BaseException):
        self.countdown, self.error = countdown, error
        real = Path.open
        outer = self

        def fake(path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            file = real(path, mode, *args, **kwargs)
            return _Wrapped(file, outer) if "w" in mode else file

        monkeypatch.setattr(Path, "open", fake)

    def step(self) -> None:
        self.countdown -= 1
        if self.countdown == 0:
            raise self.error


class _Wrapped:
    """A file that counts writes and flushes."""

    def __init__(self, file: Any, failing: FailingWrites) -> None:
        self.file, self.failing = file, failing

    def write(self, data: Any) -> int:
        self.failing.step()
        return int(self.file.write(data))

    def flush(self) -> None:
        self.failing.step()
        self.file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> "_Wrapped":
        return self

    def __exit__(self, *args: object) -> None:
        self.file.close()


NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("countdown", [1, 2, 3, 4, 30])
def test_a_full_disk_leaves_everything_as_it_was(
    room: Path,
    conversion: Conversion,
    monkeypatch: pytest.MonkeyPatch,
    countdown: int,
    overwrite: bool,
) -> None:
    expected = ["source"]
    if overwrite:
        (room / "out").mkdir()
        (room / "out" / "adapter_config.json").write_text("mine")
        expected = ["out", "source"]
    FailingWrites(monkeypatch, countdown, NO_SPACE)
    with pytest.raises(InklingError, match=r"the disk is full, `.*out` was not written"):
        write_conversion(conversion, room / "out", overwrite=overwrite)
    assert names_in(room) == expected
    if overwrite:
        assert (room / "out" / "adapter_config.json").read_text() == "mine"


def test_any_other_failure_of_the_disk_is_named(
    room: Path, conversion: Conversion, monkeypatch: pytest.MonkeyPatch
) -> None:
    FailingWrites(monkeypatch, 5, OSError(errno.EIO, os.strerror(errno.EIO)))
    with pytest.raises(InklingError, match="cannot be written: Input/output error"):
        write_conversion(conversion, room / "out")
    assert names_in(room) == ["source"]


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


@pytest.mark.parametrize("error", [KeyboardInterrupt(), NO_SPACE], ids=["interrupt", "full"])
def test_the_old_folder_comes_back_if_the_exchange_is_interrupted(
    room: Path, conversion: Conversion, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    (room / "out").mkdir()
    (room / "out" / "adapter_config.json").write_text("mine")
    real = Path.rename

    def rename(path: Path, target: Path) -> Path:
        if ".tmp-" in path.name:
            raise error
        return real(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises((KeyboardInterrupt, InklingError)):
        write_conversion(conversion, room / "out", overwrite=True)
    monkeypatch.undo()
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


def test_what_a_living_process_writes_is_left_alone(room: Path, conversion: Conversion) -> None:
    others = [f".out.tmp-{os.getppid()}", ".out.tmp-x", ".out.tmp-99999999999999999999"]
    for name in others:
        (room / name).mkdir()
    write_conversion(conversion, room / "out")
    assert names_in(room) == sorted([*others, "out", "source"])


@pytest.mark.parametrize("what", ["gone", "shorter"])
def test_a_source_that_changes_meanwhile_is_named(
    room: Path, conversion: Conversion, what: str
) -> None:
    weights = room / "source" / FILES[1]
    if what == "gone":
        weights.unlink()
    else:
        os.truncate(weights, weights.stat().st_size - 1)
    with pytest.raises(InklingError) as caught:
        write_conversion(conversion, room / "out")
    assert str(weights) in caught.value.message
    assert names_in(room) == ["source"]


def test_a_really_full_file_system_leaves_nothing_behind(
    room: Path, conversion: Conversion, monkeypatch: pytest.MonkeyPatch
) -> None:
    plenty = shutil.disk_usage(room)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: plenty)
    small = room / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12k", "tmpfs", str(small)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a file system is not permitted here")
    try:
        with pytest.raises(InklingError, match="the disk is full"):
            write_conversion(conversion, small / "out")
        assert names_in(small) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)
