"""Whatever breaks, whenever: the folder is old or new, or closed to every reader and recovered."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from ctypes import c_int, c_int64
from dataclasses import dataclass
from pathlib import Path

import pytest
from breaking_calls import COLLAPSE_RANGE, INSERT_RANGE, BreakingCalls, Dead
from in_place_folders import (
    CONFIG,
    JOURNAL,
    WEIGHTS,
    contents_of,
    inserts,
    plan_of,
    put_back,
    seen_by_engines,
    without_journal,
    write_source,
)

from inkling_runtime.adapter.in_place.apply import apply_in_place
from inkling_runtime.adapter.in_place.undo import Recovery, is_interrupted, recover, undo
from inkling_runtime.adapter.system_calls import system_call
from inkling_runtime.errors import InklingError

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
BROKEN = OSError(errno.EIO, os.strerror(errno.EIO))
BULKY = {"note": "x" * 100_000}


@dataclass
class Act:
    """Something that is done to a folder, repeatable from its start."""

    folder: Path
    original: dict[str, bytes]
    start: dict[str, bytes]
    run: Callable[[], object]

    def again(self) -> None:
        put_back(self.folder, self.start)
        self.run()


def convert_once(folder: Path, header: str) -> Act:
    original = contents_of(folder)
    made = plan_of(folder, "vllm", header)
    return Act(folder, original, original, lambda: apply_in_place(made))


def convert_again(folder: Path, header: str) -> Act:
    original = contents_of(folder)
    apply_in_place(plan_of(folder, "vllm", header))
    metadata = BULKY if header == "grows" else None
    made = plan_of(folder, "tinker", header, metadata)
    return Act(folder, original, contents_of(folder), lambda: apply_in_place(made))


def undo_once(folder: Path, header: str) -> Act:
    original = contents_of(folder)
    apply_in_place(plan_of(folder, "vllm", header))
    return Act(folder, original, contents_of(folder), lambda: undo(folder))


def undo_twice_converted(folder: Path, header: str) -> Act:
    act = convert_again(folder, header)
    act.run()
    return Act(folder, act.original, contents_of(folder), lambda: undo(folder))


ACTS = (convert_once, convert_again, undo_once, undo_twice_converted)


@pytest.fixture(autouse=True)
def unflushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no disk: what a power cut loses is modelled by the calls that break."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(params=["grows", "fits"])
def header(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "grows" and not inserts(tmp_path):
        pytest.skip("this file system inserts no bytes")
    return str(request.param)


CASES = [(act, "grows") for act in ACTS] + [(convert_again, "fits"), (undo_once, "fits")]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].__name__}-{case[1]}")
def act(request: pytest.FixtureRequest, tmp_path: Path) -> Act:
    make, header = request.param
    if header == "grows" and not inserts(tmp_path):
        pytest.skip("this file system inserts no bytes")
    made: Act = make(write_source(tmp_path / "source", header), header)
    return made


def iter_broken(act: Act, error: BaseException, lost: str = "") -> Iterator[BaseException | None]:
    """Run an act once for each of its system calls, which breaks; yield how it ended."""
    number = 0
    while True:
        number += 1
        put_back(act.folder, act.start)
        calls, ended = BreakingCalls(number, error, lost), None
        try:
            with calls.installed():
                act.run()
        except BaseException as caught:
            ended = caught
        if not calls.broken:
            assert ended is None
            assert number > 10
            return
        yield ended


def has_leftovers(folder: Path) -> bool:
    return not {path.name for path in folder.iterdir()} <= {WEIGHTS, CONFIG, JOURNAL}


def assert_can_be_undone(act: Act) -> None:
    if (act.folder / JOURNAL).exists():
        undo(act.folder)
    assert contents_of(act.folder) == act.original


@pytest.mark.parametrize("error", [BROKEN, KeyboardInterrupt()], ids=["io", "ctrl-c"])
def test_an_error_at_any_call_leaves_everything_as_it_was(act: Act, error: BaseException) -> None:
    for ended in iter_broken(act, error):
        assert isinstance(ended, InklingError if error is BROKEN else KeyboardInterrupt)
        if without_journal(contents_of(act.folder)) != act.original:
            assert contents_of(act.folder) == act.start
        assert not has_leftovers(act.folder)
        assert not is_interrupted(act.folder)
        assert_can_be_undone(act)


def test_a_full_disk_leaves_everything_as_it_was_and_is_named(tmp_path: Path, header: str) -> None:
    act = convert_once(write_source(tmp_path / "source", header), header)
    said = []
    for ended in iter_broken(act, FULL):
        assert isinstance(ended, InklingError)
        assert contents_of(act.folder) == act.start
        said.append(ended.message)
    assert sum(message == f"the disk is full, `{act.folder}` is as it was" for message in said) > 9


@pytest.mark.parametrize("lost", ["half", "all", "early"])
def test_a_death_at_any_call_misleads_no_reader_and_is_recovered(act: Act, lost: str) -> None:
    put_back(act.folder, act.start)
    before = seen_by_engines(act.folder)
    act.run()
    after = seen_by_engines(act.folder)
    assert before is not None
    assert after is not None
    assert before != after
    closed = 0
    for ended in iter_broken(act, Dead(), lost):
        assert isinstance(ended, Dead)
        left, seen = contents_of(act.folder), seen_by_engines(act.folder)
        assert seen in (None, before, after)
        assert is_interrupted(act.folder) == (seen is None)
        closed += seen is None
        if JOURNAL in left:
            undo(act.folder)
            assert contents_of(act.folder) == act.original
            put_back(act.folder, left)
        done = recover(act.folder)
        assert (done is Recovery.CONVERTED) == (seen is None)
        is_original = without_journal(contents_of(act.folder)) == act.original
        assert (act.folder / JOURNAL).exists() != is_original
        assert seen_by_engines(act.folder) in (before, after)
        assert not has_leftovers(act.folder)
        assert not is_interrupted(act.folder)
        assert_can_be_undone(act)
    assert closed > 3


def killed_at(act: Act, number: int) -> None:
    """Leave a folder as an act leaves it that is killed at its n-th system call."""
    put_back(act.folder, act.start)
    with suppress(Dead), BreakingCalls(number, Dead()).installed():
        act.run()


def calls_of(act: Act) -> BreakingCalls:
    """Return the system calls of an act."""
    calls = BreakingCalls()
    with calls.installed():
        act.again()
    return calls


def test_a_conversion_that_was_killed_before_it_began_can_be_run_again(
    tmp_path: Path, header: str
) -> None:
    act = convert_once(write_source(tmp_path / "source", header), header)
    killed_at(act, calls_of(act).names.index("replace") + 2)
    assert without_journal(contents_of(act.folder)) == act.original
    assert (act.folder / JOURNAL).exists()
    act.run()
    assert without_journal(contents_of(act.folder)) != act.original
    assert_can_be_undone(act)


def test_a_recovery_makes_no_file_where_the_config_is_there_already(
    tmp_path: Path, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    act, real = convert_once(write_source(tmp_path / "source", header), header), os.open
    killed_at(act, len(calls_of(act).names) - 1)
    assert is_interrupted(act.folder)
    assert contents_of(act.folder)[CONFIG] != act.original[CONFIG]

    def refuse(path: str, flags: int, *args: int, **kwargs: int) -> int:
        if flags & os.O_CREAT:
            raise FULL
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    assert recover(act.folder) is Recovery.CONVERTED


@pytest.fixture(params=[convert_again, undo_twice_converted])
def closed(request: pytest.FixtureRequest, tmp_path: Path) -> Act:
    """An act whose start is that of a folder left in the middle of the act before."""
    header = "grows" if inserts(tmp_path) else "fits"
    act: Act = request.param(write_source(tmp_path / "source", header), header)
    killed_at(act, len(calls_of(act).names) // 2)
    assert is_interrupted(act.folder)
    act.start = contents_of(act.folder)
    return act


@pytest.mark.parametrize("again", [recover, undo])
def test_a_death_while_a_death_is_made_good_is_made_good(
    closed: Act, again: Callable[[Path], object]
) -> None:
    closed.run = lambda: again(closed.folder)
    for ended in iter_broken(closed, Dead()):
        assert ended is not None
        recover(closed.folder)
        assert seen_by_engines(closed.folder) is not None
        assert_can_be_undone(closed)


def test_a_recovery_that_cannot_finish_the_conversion_goes_back_to_the_start(
    closed: Act,
) -> None:
    done: list[Recovery] = []
    closed.run = lambda: done.append(recover(closed.folder))
    for ended in iter_broken(closed, FULL):
        assert ended is None or isinstance(ended, InklingError)
        assert ended is not None or not is_interrupted(closed.folder)
        if ended is None and done[-1] is Recovery.ORIGINAL:
            assert contents_of(closed.folder) == closed.original
        assert_can_be_undone(closed)
    assert Recovery.ORIGINAL in done


def test_an_undo_of_an_interrupted_conversion_that_breaks_says_so(closed: Act) -> None:
    closed.run = lambda: undo(closed.folder)
    said = []
    for ended in iter_broken(closed, FULL):
        assert isinstance(ended, InklingError)
        said.append(ended.message)
        assert_can_be_undone(closed)
    assert sum("may be closed to every reader" in message for message in said) > 5


BLOCK = 4096


@pytest.fixture(params=ACTS, ids=lambda act: act.__name__)
def moving(request: pytest.FixtureRequest, tmp_path: Path) -> Act:
    """An act that moves blocks, in a file of several."""
    if not inserts(tmp_path):
        pytest.skip("this file system inserts no bytes")
    act: Act = request.param(write_source(tmp_path / "source"), "grows")
    return act


@pytest.mark.parametrize("again", [recover, undo])
def test_a_power_cut_while_blocks_are_moved_is_made_good(
    moving: Act, again: Callable[[Path], object]
) -> None:
    calls = calls_of(moving)
    moment, (move,) = calls.names.index("fallocate") + 1, calls.moves
    after, weights = contents_of(moving.folder), moving.folder / WEIGHTS
    for block in range(1, 99):
        killed_at(moving, moment)
        move_partly(weights, *move, block * BLOCK)
        assert seen_by_engines(moving.folder) is None
        assert is_interrupted(moving.folder)
        again(moving.folder)
        if again is recover:
            assert contents_of(moving.folder) in (moving.start, after)
        assert_can_be_undone(moving)
        if block * BLOCK > len(moving.original[WEIGHTS]):
            break
    assert block > 5


def move_partly(path: Path, mode: int, num_bytes: int, start: int) -> None:
    """Leave a file as a power cut does that comes while its blocks are moved.

    Those before `start` stand where the shorter file has them, the others where the longer has.
    """
    fallocate = system_call("fallocate", c_int, c_int, c_int64, c_int64)
    assert fallocate is not None
    with path.open("r+b") as file:
        if mode == COLLAPSE_RANGE:
            fallocate(file.fileno(), mode, 0, num_bytes)
        size = os.fstat(file.fileno()).st_size
        if start >= size:
            os.ftruncate(file.fileno(), size + num_bytes)
        else:
            fallocate(file.fileno(), INSERT_RANGE, start, num_bytes)
