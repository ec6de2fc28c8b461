"""A conversion that is killed or interrupted: its target is absent or whole, the next run works."""

import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from factories import Sizes, released_adapter_config, released_modules, write_sparse_adapter
from inkling_cli.main import main

SIZES = Sizes(hidden=512, layers=8, inner=256, experts=32, dense=1024)
PROGRAM = (
    "import signal, sys; from inkling_cli.main import main;"
    "signal.signal(signal.SIGINT, signal.default_int_handler);"  # a runner may ignore it
    "sys.exit(main())"
)
OLD = {"adapter_config.json": b"mine"}
NUM_MOMENTS = 25


@dataclass(frozen=True)
class Room:
    """A folder with a source of tens of megabytes, and how long its conversion takes."""

    folder: Path
    whole: dict[str, bytes]
    starts: float
    """Seconds until something is written."""
    ends: float

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def words(self, *more: str) -> list[str]:
        return ["convert-adapter", str(self.folder / "source"), "--to", "vllm", "-o", *more]

    def start(self, *more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *self.words(str(self.out), *more)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def leftovers(self) -> list[str]:
        return [path.name for path in self.folder.iterdir() if path.name not in ("out", "source")]

    def moments(self) -> list[float]:
        """Return moments from before something is written until after the end, the same always."""
        shares = random.Random(0)
        first = 0.9 * self.starts
        return [first + shares.random() * (self.ends - first) for _ in range(NUM_MOMENTS)]

    def prepare(self, old: dict[str, bytes] | None) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        if old is not None:
            self.out.mkdir()
            for name, data in old.items():
                (self.out / name).write_bytes(data)


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    folder = tmp_path_factory.mktemp("room")
    config = released_adapter_config(64)
    write_sparse_adapter(folder / "source", released_modules(SIZES), config)
    room = Room(folder, {}, 0, 0)
    begin = time.perf_counter()
    with room.start() as process:
        wait_for_writing(room, process)
        starts = time.perf_counter() - begin
        assert process.wait() == 0
    ends = time.perf_counter() - begin
    whole = contents_of(room.out)
    assert whole is not None
    assert len(whole["adapter_model.safetensors"]) > 20_000_000
    return Room(folder, whole, starts, ends)


def contents_of(folder: Path) -> dict[str, bytes] | None:
    if not folder.exists():
        return None
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def wait_until(process: subprocess.Popen[str], moment: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(moment)


def wait_for_writing(room: Room, process: subprocess.Popen[str]) -> None:
    while process.poll() is None and not room.leftovers():
        wait_until(process, 0.002)


@pytest.mark.slow
@pytest.mark.parametrize("old", [None, OLD], ids=["new", "overwrite"])
def test_a_process_killed_at_any_moment_leaves_the_target_absent_or_whole(
    room: Room, old: dict[str, bytes] | None
) -> None:
    num_killed = 0
    flags = [] if old is None else ["--overwrite"]
    for moment in room.moments():
        room.prepare(old)
        with room.start(*flags) as process:
            wait_until(process, moment)
            process.kill()
            num_killed += process.wait() == -signal.SIGKILL
        assert contents_of(room.out) in (old, room.whole), moment
        assert main([*room.words(str(room.out)), "--overwrite"]) == 0
        assert contents_of(room.out) == room.whole, moment
        assert room.leftovers() == [], moment
    assert num_killed > 0


@pytest.mark.parametrize("num_signals", [1, 3])
def test_ctrl_c_leaves_everything_as_it_was_and_nothing_beside_it(
    room: Room, num_signals: int
) -> None:
    for moment in room.moments()[:5]:
        room.prepare(OLD)
        with room.start("--overwrite") as process:
            wait_for_writing(room, process)
            wait_until(process, (moment - room.starts) / 2)
            for _ in range(num_signals):
                process.send_signal(signal.SIGINT)
            _, said = process.communicate()
        assert "Traceback" not in said
        assert process.returncode in (130, 0, -signal.SIGINT)  # the last two: it had ended
        assert contents_of(room.out) in (OLD, room.whole)
        assert room.leftovers() == []
