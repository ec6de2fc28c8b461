"""Models and adapters that launches name, written once for all tests of this folder."""

import pytest

from checks.adapter_folders import write_world


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    return write_world(tmp_path_factory.mktemp("world"))
