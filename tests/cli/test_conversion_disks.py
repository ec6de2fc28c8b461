"""Conversions to disks that take too little, or nothing: what is, what to do, nothing left."""

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from factories import write_released_adapter

CONVERT = "import sys; from inkling_cli.main import main; sys.exit(main())"
ON_A_DISK = (
    'mount -t tmpfs -o "$1" tmpfs "$2" && cd "$2" && shift 2 && "$@"; code=$?; ls -A; exit $code'
)
"""Mount a file system in memory, run a command in it, list what is there."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_released_adapter(tmp_path / "source")


def convert(
    source: Path, prefix: list[str], out: str, limit: Callable[[], None] | None = None
) -> tuple[int, list[str], list[str]]:
    """Return the exit code, the lines of stdout and those of stderr but for the notes."""
    words = ["convert-adapter", str(source), "--to", "vllm", "-o", out]
    done = subprocess.run(
        [*prefix, sys.executable, "-B", "-c", CONVERT, *words],
        capture_output=True,
        text=True,
        preexec_fn=limit,
    )
    said = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    return done.returncode, done.stdout.splitlines(), said


def disk(folder: Path, options: str) -> list[str]:
    """Return the words before a command that run it on a small disk, which not all may mount."""
    prefix = ["unshare", "-rm", "sh", "-c", ON_A_DISK, "sh", options, str(folder)]
    try:
        subprocess.run([*prefix, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a file system is not permitted here")
    return prefix


def test_a_limit_on_the_size_of_files_is_named(source: Path, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    out = tmp_path / "out"
    code, answer, said = convert(source, [], str(out), limit)
    assert (code, answer) == (2, [])
    assert said == [
        f"error: `{out}` needs a file that is larger than 10,000 bytes, the limit of this process",
        "hint: run `ulimit -f unlimited` first",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(
    source: Path, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    code, listed, said = convert(source, disk(tmp_path / "disk", "size=4k"), "out")
    assert (code, listed) == (2, [])
    assert said[0].startswith("error: `out` needs ")
    assert said[0].endswith(" bytes, the disk has 4,096 bytes free")
    assert said[1] == "hint: make room, or choose a folder on another disk"


@pytest.mark.parametrize("short", ["the header", "the record"])
def test_a_disk_that_is_full_in_the_end_is_said_to_be(
    source: Path, tmp_path: Path, short: str
) -> None:
    (tmp_path / "disk").mkdir()
    assert convert(source, [], str(tmp_path / "out"))[0] == 0
    weights = (tmp_path / "out" / "adapter_model.safetensors").stat().st_size
    pages = -(-weights // 4096) + (0 if short == "the header" else 1)
    code, listed, said = convert(source, disk(tmp_path / "disk", f"size={4 * pages}k"), "out")
    assert (code, listed) == (2, [])
    assert said[0].startswith("error: the disk is full, `out` was not written; it needs ")
    assert said[1] == "hint: make room, or choose a folder on another disk"


def test_a_disk_that_is_read_only_is_named(source: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    code, listed, said = convert(source, disk(tmp_path / "disk", "ro"), "out")
    assert (code, listed) == (2, [])
    assert said == ["error: `out` cannot be written: Read-only file system"]


def test_a_disk_that_is_mounted_at_the_target_is_named(source: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    prefix = disk(tmp_path / "disk", "size=1m")
    code, _, said = convert(source, prefix, str(tmp_path / "disk"))
    assert (code, said[0]) == (2, f"error: `{tmp_path / 'disk'}` exists")
