"""A folder with launches, models and adapters to run commands in."""

import shutil
from pathlib import Path

import pytest

from checks.adapter_folders import write_world

INPUTS = Path(__file__).parent / "golden" / "inputs"


@pytest.fixture(scope="session")
def workspace(tmp_path_factory):
    folder = write_world(tmp_path_factory.mktemp("workspace"))
    shutil.copytree(INPUTS, folder, dirs_exist_ok=True)
    return folder


@pytest.fixture
def in_workspace(workspace, monkeypatch):
    """Run in the workspace, as a program whose output goes into a pipe 80 columns wide."""
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS", "INKLING_DEBUG", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    return workspace
