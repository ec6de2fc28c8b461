"""Processes that are really killed, at every moment that can matter."""

import subprocess
import sys
from pathlib import Path

import pytest
from in_place_folders import inserts, write_source

DRIVER = Path(__file__).with_name("in_place_kills.py")


@pytest.mark.parametrize("header", ["grows", "fits"])
def test_a_folder_survives_kill_9_at_every_system_call(tmp_path: Path, header: str) -> None:
    if header == "grows" and not inserts(tmp_path):
        pytest.skip("this file system inserts no bytes")
    source = write_source(tmp_path / "source", header)
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30
