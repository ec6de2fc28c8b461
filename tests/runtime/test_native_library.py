"""The building, caching and loading of the kernels, with real and with broken compilers."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from inkling_runtime.errors import InklingError
from inkling_runtime.ops.backend import Backend, backend_for
from inkling_runtime.ops.native import library

GXX = shutil.which("g++")
pytestmark = pytest.mark.skipif(GXX is None, reason="there is no g++")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache folder with the library of `g++`."""
    folder = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.delenv("CXX", raising=False)
        library.enable("off")
        library.enable("on")
        library.enable("off")
    return folder / "inkling"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let the library be switched off, its cache be empty and no compiler be there."""
    library.enable("off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CXX", raising=False)
    yield tmp_path / "cache" / "inkling"
    library.enable("off")


def copy_library(built: Path, cache: Path) -> Path:
    shutil.copytree(built, cache)
    (copy,) = cache.iterdir()
    return copy


def make_compiler(cache: Path, name: str, script: str) -> Path:
    """Put a compiler on the path of the test."""
    path = cache.parents[1] / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def make_quick_compiler(built: Path, cache: Path, name: str, log: Path) -> Path:
    """Put a compiler there whose every output is the library of g++, and that logs its runs."""
    (library_file,) = built.iterdir()
    copy = f'PATH="{os.defpath}" cp "{library_file}" "$2"'
    script = f'echo run >> "{log}"\nwhile [ "$1" != -o ]; do shift; done\n{copy}'
    return make_compiler(cache, name, script)


def test_a_built_library_is_all_that_is_left_in_the_cache(built: Path) -> None:
    (file,) = built.iterdir()
    assert file.match("native-*.so")


def test_enabled_kernels_take_cpu_tensors_until_switched_off(built: Path, cache: Path) -> None:
    copy_library(built, cache)
    assert backend_for(torch.ones(1)) is Backend.TORCH
    assert library.enable("on") is None
    assert library.is_enabled()
    assert backend_for(torch.ones(1)) is Backend.NATIVE
    assert library.enable("off") is None
    assert backend_for(torch.ones(1)) is Backend.TORCH
    with pytest.raises(RuntimeError, match="not enabled"):
        library.kernels()


def test_what_is_in_the_cache_needs_no_compiler(built: Path, cache: Path) -> None:
    copy_library(built, cache)
    assert library.enable("auto") is None
    assert library.is_enabled()


def test_a_compiler_runs_once_per_machine(built: Path, cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    make_quick_compiler(built, cache, "g++", log)
    assert library.enable("on") is None
    runs = log.read_text()
    assert runs
    library.enable("off")
    assert library.enable("on") is None
    assert log.read_text() == runs


def test_without_compiler_auto_says_so_and_on_is_an_error(cache: Path) -> None:
    note = library.enable("auto")
    assert note == (
        "the compiled CPU kernels cannot be used: no C++ compiler is found (looked for `g++`, "
        "`c++`, `clang++`); running on torch alone, which is slower"
    )
    assert not library.is_enabled()
    with pytest.raises(InklingError, match="no C\\+\\+ compiler is found") as error:
        library.enable("on")
    assert error.value.hint is not None
    assert not cache.exists()


def test_off_asks_for_nothing(cache: Path) -> None:
    assert library.enable("off") is None
    assert not library.is_enabled()
    assert not cache.exists()


@pytest.mark.parametrize("damage", ["empty", "cut", "changed"])
def test_a_damaged_file_is_not_loaded(built: Path, cache: Path, damage: str) -> None:
    file = copy_library(built, cache)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes({"empty": b"", "cut": content[:5000], "changed": content}[damage])
    note = library.enable("auto")
    assert note is not None
    assert "no C++ compiler is found" in note


def test_a_damaged_file_is_built_again(built: Path, cache: Path, tmp_path: Path) -> None:
    make_quick_compiler(built, cache, "g++", tmp_path / "log")
    library.enable("on")
    (file,) = cache.iterdir()
    damaged = file.read_bytes()[:5000]
    file.unlink()  # the process still has the pages of the whole file
    file.write_bytes(damaged)
    library.enable("off")
    assert library.enable("on") is None
    assert file.stat().st_size > 5000


def test_a_library_of_other_sources_is_not_taken(built: Path, cache: Path) -> None:
    file = copy_library(built, cache)
    file.rename(cache / f"native-{'0' * 16}-{'0' * 16}.so")
    assert library.enable("auto") is not None


def test_a_compiler_that_fails_is_named_with_its_complaint(cache: Path) -> None:
    path = make_compiler(cache, "g++", "echo noise >&2; echo 'fatal error: no disk' >&2; exit 4")
    note = library.enable("auto")
    assert note is not None
    assert f"`{path}` ends with status 4: fatal error: no disk" in note
    with pytest.raises(InklingError, match="no disk"):
        library.enable("on")
    assert list(cache.iterdir()) == []


def test_the_next_compiler_is_tried_after_one_that_fails(
    built: Path, cache: Path, tmp_path: Path
) -> None:
    make_compiler(cache, "g++", "exit 1")
    make_quick_compiler(built, cache, "clang++", tmp_path / "log")
    assert library.enable("on") is None
    assert (tmp_path / "log").exists()


def test_a_compiler_that_builds_nothing_of_use_is_named(cache: Path) -> None:
    path = make_compiler(cache, "c++", 'while [ "$1" != -o ]; do shift; done; echo x > "$2"')
    note = library.enable("auto")
    assert note is not None
    assert f"what `{path}` builds cannot be loaded" in note


def test_the_compiler_that_cxx_names_comes_first(
    built: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_quick_compiler(built, cache, "g++", tmp_path / "usual")
    mine = make_quick_compiler(built, cache, "mine", tmp_path / "named")
    monkeypatch.setenv("CXX", f"{mine} -g0")
    assert library.enable("on") is None
    assert (tmp_path / "named").exists()
    assert not (tmp_path / "usual").exists()


def test_a_cache_folder_that_cannot_be_written_is_named(cache: Path) -> None:
    make_compiler(cache, "g++", "exit 1")
    cache.parent.write_text("a file where a folder is expected")
    note = library.enable("auto")
    assert note is not None
    assert f"the cache folder `{cache}` cannot be written: Not a directory" in note
    with pytest.raises(InklingError, match="cannot be written"):
        library.enable("on")


def test_kernels_that_are_not_worth_building_are_used_only_if_they_are_there(
    built: Path, cache: Path
) -> None:
    log = cache.parents[1] / "log"
    make_quick_compiler(built, cache, "g++", log)
    assert library.enable("auto", may_build=False) is None
    assert not library.is_enabled()
    assert not log.exists()
    assert library.enable("auto") is None
    library.enable("off")
    runs = log.read_text()
    assert library.enable("auto", may_build=False) is None
    assert library.is_enabled()
    assert log.read_text() == runs
