"""Whatever breaks, whenever: the folder is old or new, or closed to every reader and recovered."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from in_place_acts import (
    ACTS,
    Act,
    assert_can_be_undone,
    calls_of,
    convert_again,
    convert_once,
    has_leftovers,
    iter_broken,
    killed_at,
    undo_once,
    undo_twice_converted,
)
from in_place_folders import (
    CONFIG,
    JOURNAL,
    WEIGHTS,
    contents_of,
    inserts,
    put_back,
    seen_by_engines,
    without_journal,
    write_source,
)
from power_cuts import Dead

from inkling_runtime.adapter.in_place.undo import Recovery, is_interrupted, recover, undo
from inkling_runtime.adapter.system_calls import fallocate
from inkling_runtime.errors import InklingError

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
BROKEN = OSError(errno.EIO, os.strerror(errno.EIO))


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

COLLAPSE_RANGE, INSERT_RANGE = 0x08, 0x20
"""Modes of `fallocate`."""


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
    with path.open("r+b") as file:
        if mode == COLLAPSE_RANGE:
            fallocate(file.fileno(), mode, 0, num_bytes)
        size = os.fstat(file.fileno()).st_size
        if start >= size:
            os.ftruncate(file.fileno(), size + num_bytes)
        else:
            fallocate(file.fileno(), INSERT_RANGE, start, num_bytes)
