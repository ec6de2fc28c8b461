"""What is done to folders in place, repeatable, and what is left where its system calls break."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from in_place_folders import CONFIG, JOURNAL, WEIGHTS, contents_of, plan_of, put_back
from power_cuts import Dead, DyingCalls

from inkling_runtime.adapter.in_place.apply import apply_in_place
from inkling_runtime.adapter.in_place.undo import undo

BULKY = {"note": "x" * 100_000}
"""Metadata that no header has room for."""


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


def iter_broken(act: Act, error: BaseException, lost: str = "") -> Iterator[BaseException | None]:
    """Run an act once for each of its system calls, which breaks; yield how it ended."""
    number = 0
    while True:
        number += 1
        put_back(act.folder, act.start)
        calls, ended = DyingCalls(number, error, lost), None
        try:
            with calls.installed():
                act.run()
        except BaseException as caught:
            ended = caught
        if calls.broken is None:
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


def killed_at(act: Act, number: int) -> None:
    """Leave a folder as an act leaves it that is killed at its n-th system call."""
    put_back(act.folder, act.start)
    with suppress(Dead), DyingCalls(number, Dead()).installed():
        act.run()


def calls_of(act: Act) -> DyingCalls:
    """Return the system calls of an act."""
    calls = DyingCalls()
    with calls.installed():
        act.again()
    return calls
