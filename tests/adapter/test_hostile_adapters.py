"""Whatever lies in an adapter's folder, every command ends in an answer or a clear error."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hostile import read_all
from hostile.adapters import (
    CONFIG,
    KINDS,
    LARGE,
    LAWFUL,
    ODD_FILES,
    SMALL,
    WEIGHTS,
    Change,
    write_hostile,
)
from hostile.configs import ENDLESS_KEYS, VALUES
from hostile.pipes import error_from_pipe

from factories import raw_config, write_model, write_released_adapter
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.arrays import load
from inkling_runtime.adapter.lora_config import read_lora_config
from inkling_runtime.adapter.moves import Read
from inkling_runtime.errors import InklingError

SMALL_PEAK, LARGE_PEAK = 400 * 2**20, 700 * 2**20
"""Bytes of a process that reads hostile files; the base of it is up to a fifth of a gigabyte."""

SAMPLE = {name: SMALL[name] for name in sorted(SMALL)[::15]}
ALL = "inspect,check-adapter,convert-adapter,resize,merge,diff,check-config,plan"


def run_commands(adapters: Iterable[Path], commands: str, folder: Path) -> list[dict[str, Any]]:
    """Return how the commands end on adapters, in a process with limited memory and time."""
    model = folder / "model" / "config.json"
    if not model.exists():
        write_model(model.parent, raw_config())
    done = subprocess.run(
        [sys.executable, read_all.__file__, str(model), commands, *map(str, adapters)],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def require_clear(run: dict[str, Any], codes: tuple[int, ...], peak: int) -> None:
    """Require that a run ended with one of these codes and says what is wrong, where."""
    said = run["stdout"] + run["stderr"]
    assert run["code"] in codes, said
    assert "Traceback" not in said
    assert "a bug in inkling" not in said
    assert "\x1b" not in said
    assert len(said) < 50_000
    assert run["peak"] < peak
    if run["code"] == 2:
        assert run["stderr"].startswith("error: ")
        assert run["adapter"] in run["stderr"]


def codes_of(command: str) -> tuple[int, ...]:
    """Return how a command may end on an adapter that cannot be read: `plan` needs none."""
    return {"check-adapter": (1,), "check-config": (1,), "plan": (0,)}.get(command, (2,))


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "commands"), [(SMALL, "inspect"), (SAMPLE | ODD_FILES, ALL)])
def test_an_adapter_that_cannot_be_read_ends_every_command_with_a_clear_error(
    tmp_path: Path, changes: dict[str, Change], commands: str
) -> None:
    adapters = list(write_hostile(tmp_path, changes))
    runs = run_commands(adapters, commands, tmp_path)
    assert {run["adapter"] for run in runs} == set(map(str, adapters))
    for run in runs:
        require_clear(run, codes_of(run["command"]), SMALL_PEAK)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_a_file_as_large_as_is_let_through_costs_bounded_memory(tmp_path: Path, name: str) -> None:
    (adapter,) = write_hostile(tmp_path, {name: LARGE[name]})
    runs = run_commands([adapter], "inspect", tmp_path)
    shutil.rmtree(adapter)
    assert runs
    for run in runs:
        require_clear(run, (0, 2), LARGE_PEAK)


def test_odd_names_and_endless_patterns_are_read(tmp_path: Path) -> None:
    adapters = list(write_hostile(tmp_path, LAWFUL))
    runs = run_commands(adapters, ALL, tmp_path)
    for run in runs:
        require_clear(run, (0, 1, 2), SMALL_PEAK)
        if run["command"] == "inspect":
            assert run["code"] == 0


@pytest.mark.parametrize("name", VALUES)
def test_a_hostile_value_in_the_config_is_refused_by_what_is_wrong(
    tmp_path: Path, name: str
) -> None:
    data, expected = VALUES[name]
    (tmp_path / CONFIG).write_bytes(data)
    with pytest.raises(InklingError) as caught:
        read_lora_config(tmp_path)
    assert expected in caught.value.message
    assert str(tmp_path / CONFIG) in caught.value.message
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize("key", ENDLESS_KEYS)
def test_a_pattern_with_endless_ways_to_match_is_matched_at_once(tmp_path: Path, key: str) -> None:
    (tmp_path / CONFIG).write_text(json.dumps({"r": 2, "lora_alpha": 8, "rank_pattern": {key: 3}}))
    assert read_lora_config(tmp_path).rank_of("layers." + "ab" * 400 + "!") == 2


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_a_file_is_refused_by_its_name(tmp_path: Path, name: str, kind: str) -> None:
    adapter = write_released_adapter(tmp_path / "a", groups=["attention"])
    (adapter / name).unlink()
    KINDS[kind](adapter / name)
    with pytest.raises(InklingError) as caught:
        read_adapter(adapter)
    assert name in caught.value.message


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
def test_a_pipe_in_the_place_of_a_file_does_not_hang(tmp_path: Path, name: str) -> None:
    adapter = write_released_adapter(tmp_path / "a", groups=["attention"])
    (adapter / name).unlink()
    error = error_from_pipe(lambda pipe: read_adapter(pipe.parent), adapter / name)
    assert isinstance(error, InklingError)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
@pytest.mark.parametrize("name", [WEIGHTS, CONFIG, "."])
def test_what_may_not_be_read_is_refused(tmp_path: Path, name: str) -> None:
    adapter = write_released_adapter(tmp_path / "a", groups=["attention"])
    (adapter / name).chmod(0)
    try:
        with pytest.raises(InklingError, match="Permission denied"):
            read_adapter(adapter)
    finally:
        (adapter / name).chmod(0o700)


def test_a_file_that_shrinks_behind_its_header_is_refused(tmp_path: Path) -> None:
    adapter = read_adapter(write_released_adapter(tmp_path / "a", groups=["attention"]))
    path = adapter.file.path
    last = max(adapter.file.tensors.values(), key=lambda tensor: tensor.end)
    os.truncate(path, last.end - 1)
    with pytest.raises(InklingError, match=r"ended inside"):
        load(Read(path, last))


def test_a_folder_whose_name_is_too_long_is_refused() -> None:
    with pytest.raises(InklingError, match="File name too long"):
        read_adapter(Path("x" * 5000))
