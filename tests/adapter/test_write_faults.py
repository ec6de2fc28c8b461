"""Whichever system call fails: the target is absent or whole, and what failed is said."""

import errno
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from conversion import plan, spec_of
from writing_calls import REMOVING, WritingCalls

from factories import TINY, Sizes, write_released_adapter
from inkling_runtime.adapter import tensor_writer
from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.convert.write import write_conversion
from inkling_runtime.errors import InklingError

OLD = {"adapter_config.json": b"mine"}


def system_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


ERRORS = {name: system_error(getattr(errno, name)) for name in ("ENOSPC", "EIO", "EACCES")}


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A folder that holds the source adapter, small, and nothing else."""
    write_released_adapter(tmp_path / "source", groups=["routed"], layers=[1])
    return tmp_path


@pytest.fixture
def conversion(room: Path) -> Conversion:
    return plan(room / "source", "vllm", spec_of(TINY))


@pytest.fixture
def whole(room: Path, conversion: Conversion) -> dict[str, bytes]:
    """What a whole target holds."""
    write_conversion(conversion, room / "whole")
    return contents_of(room / "whole")


def contents_of(folder: Path) -> dict[str, bytes] | None:
    """Return what the files of a folder hold, None where there is no folder."""
    if not folder.exists():
        return None
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def leftovers_in(room: Path) -> list[Path]:
    return [path for path in room.iterdir() if path.name not in ("out", "source", "whole")]


def remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def put_old(out: Path) -> None:
    out.mkdir()
    for name, data in OLD.items():
        (out / name).write_bytes(data)


def iter_broken(
    conversion: Conversion, out: Path, error: BaseException, *, overwrite: bool, is_linux: bool
) -> Iterator[tuple[str, BaseException | None]]:
    """Write once for each system call, which breaks; yield its name and how it ended."""
    number = 0
    while True:
        number += 1
        if overwrite and not out.exists():
            put_old(out)
        calls, ended = WritingCalls(number, error, is_linux=is_linux), None
        try:
            with calls.installed():
                write_conversion(conversion, out, overwrite=overwrite)
        except BaseException as caught:
            ended = caught
        if calls.broken is None:
            assert ended is None
            assert number > 50
            return
        yield calls.broken, ended


@pytest.mark.parametrize("is_linux", [True, False], ids=["linux", "elsewhere"])
@pytest.mark.parametrize("overwrite", [False, True], ids=["new", "overwrite"])
@pytest.mark.parametrize("error", [*ERRORS.values(), KeyboardInterrupt()], ids=[*ERRORS, "ctrl-c"])
def test_the_target_is_absent_or_whole_whichever_call_fails(
    room: Path,
    conversion: Conversion,
    whole: dict[str, bytes],
    error: BaseException,
    overwrite: bool,
    is_linux: bool,
) -> None:
    out = room / "out"
    before = OLD if overwrite else None
    for call, ended in iter_broken(conversion, out, error, overwrite=overwrite, is_linux=is_linux):
        found, left = contents_of(out), leftovers_in(room)
        assert found in (before, whole), call
        assert_said(ended, error, is_new=found == whole)
        if left:
            assert call in REMOVING
            write_conversion(conversion, out, overwrite=True)
            assert leftovers_in(room) == [], call
        remove(out)


def assert_said(ended: BaseException | None, error: BaseException, *, is_new: bool) -> None:
    """Whatever went wrong is said rightly; where it did no harm, the target is there."""
    if isinstance(error, KeyboardInterrupt):
        assert isinstance(ended, KeyboardInterrupt)
    elif ended is None:
        assert is_new
    else:
        assert isinstance(ended, InklingError)
        assert ("is whole, but the disk does not confirm its name" in ended.message) == is_new
        assert ended.hint or "cannot be" in ended.message


@pytest.mark.parametrize(
    ("number", "message", "hint"),
    [
        (
            errno.ENOSPC,
            r"the disk is full, `.*out` was not written; it needs 1,140 bytes",
            "make room, or choose a folder on another disk",
        ),
        (
            errno.EDQUOT,
            r"the disk quota is used up, `.*out` was not written; it needs 1,140 bytes",
            "make room, or choose a folder on another disk",
        ),
        (
            errno.EFBIG,
            r"`.*out` needs a file that is larger than its file system takes",
            "choose a folder on another disk",
        ),
        (errno.EROFS, r"`.*out` cannot be written: Read-only file system", None),
    ],
)
def test_what_the_disk_refuses_is_said_with_what_to_do(
    room: Path,
    conversion: Conversion,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    message: str,
    hint: str | None,
) -> None:
    def pwrite(*args: object) -> int:
        raise system_error(number)

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(InklingError, match=message) as caught:
        write_conversion(conversion, room / "out")
    assert caught.value.hint == hint


@pytest.mark.parametrize("count", [0, 1])
def test_a_disk_that_takes_less_than_asked_is_asked_again_but_not_forever(
    room: Path,
    conversion: Conversion,
    whole: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    count: int,
) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, start: real(file, data[:count], start))
    if count:
        write_conversion(conversion, room / "out")
        assert contents_of(room / "out") == whole
    else:
        with pytest.raises(InklingError, match="the file system takes no more bytes"):
            write_conversion(conversion, room / "out")


def test_a_fault_in_one_thread_ends_the_other_and_is_raised(
    many_blocks: Conversion, tmp_path: Path
) -> None:
    done: list[int] = []

    def progress(nbytes: int) -> None:
        done.append(nbytes)
        if len(done) >= 10:
            raise InklingError(f"fault {len(done)}")

    with pytest.raises(InklingError, match=r"fault 1[01]"):
        write_conversion(many_blocks, tmp_path / "out", progress=progress)
    assert len(done) <= 11
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("num_signals", [1, 3])
def test_ctrl_c_ends_the_threads_after_a_block_or_two(
    many_blocks: Conversion, tmp_path: Path, num_signals: int
) -> None:
    done: list[int] = []

    def progress(nbytes: int) -> None:
        done.append(nbytes)
        if 10 <= len(done) < 10 + num_signals:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a runner may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            write_conversion(many_blocks, tmp_path / "out", progress=progress)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert sum(done) < many_blocks.nbytes / 2
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.fixture
def many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Conversion:
    """A conversion of some 7 MB that is written in blocks of 4 KB."""
    monkeypatch.setattr(tensor_writer, "BLOCK_BYTES", 4096)
    sizes = Sizes(hidden=512, inner=256, experts=32)
    write_released_adapter(tmp_path / "source", sizes, rank=32, groups=["routed"])
    return plan(tmp_path / "source", "vllm", spec_of(sizes))
