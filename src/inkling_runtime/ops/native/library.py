"""The compiled CPU kernels of this process: built once per machine, then read from the cache.

Off until `enable` is called. Whatever is in the way (no compiler, a compiler that fails, a cache
folder that cannot be written, a damaged file in it) the runtime works without them, slower.

Torch must be imported before the library is loaded, as it is here: both then share torch's own
OpenMP threads instead of having two sets that fight for the cores.
"""

import ctypes
import hashlib
import os
import platform
import tempfile
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal

import torch  # noqa: F401 - its OpenMP library must be the one that is loaded

from inkling_runtime.errors import InklingError
from inkling_runtime.ops.native.compiler import FLAGS, Compiler, CompilerError, iter_compilers
from inkling_runtime.ops.native.cpu import cpu_features
from inkling_runtime.ops.native.signatures import declare

CompileMode = Literal["auto", "on", "off"]

_DIGEST_SIZE = 32
"""A cached file ends with the SHA-256 of what is before it; a loader ignores what follows an ELF
image, but one that is cut short would crash the process."""

_loaded: ctypes.CDLL | None = None


def enable(mode: CompileMode, *, may_build: bool = True) -> str | None:
    """Switch the compiled kernels on or off.

    Args:
        mode: `auto` and `on` load the kernels, building them if the cache does not have them;
            `off` switches them off.
        may_build: with `auto`, whether building them, which takes seconds, is worth it; if not,
            they are used only if the cache has them.

    Returns:
        With `auto`, why they are not used; otherwise None.

    Raises:
        InklingError: the mode is `on` and they cannot be had.
    """
    global _loaded
    if mode == "off":
        _loaded = None
        return None
    if _loaded is not None:
        return None
    try:
        _loaded = _load(may_build=may_build or mode == "on")
    except _NotBuiltError:
        return None
    except _UnavailableError as error:
        message = f"the compiled CPU kernels cannot be used: {error}"
        if mode == "on":
            raise InklingError(message, "install `g++`, or let `--compile` be `auto`") from error
        return f"{message}; running on torch alone, which is slower"
    return None


def is_enabled() -> bool:
    """Return whether the compiled kernels are loaded and switched on."""
    return _loaded is not None


def kernels() -> ctypes.CDLL:
    """Return the library; its functions are those of `signatures.py`."""
    if _loaded is None:
        raise RuntimeError("the compiled kernels are not enabled")
    return _loaded


class _UnavailableError(Exception):
    """Why there is no library."""


class _NotBuiltError(Exception):
    """There is no library yet, and it is not to be built now."""


def _load(*, may_build: bool) -> ctypes.CDLL:
    with as_file(files("inkling_runtime.ops.native") / "kernels") as folder:
        sources = sorted(folder.iterdir())
        cache, key = _cache_folder(), _key(sources)
        compilers = list(iter_compilers())
        names = [f"native-{key}-{_digest(c.identity())}.so" for c in compilers]
        if not compilers:
            # Built by a compiler that is gone: as good as any.
            names = sorted(path.name for path in _list(cache) if path.match(f"native-{key}-*.so"))
        for name in names:
            library = _read(cache / name)
            if library is not None:
                return library
        if not may_build:
            raise _NotBuiltError
        units = [source for source in sources if source.suffix == ".cpp"]
        return _build_first(compilers, units, cache, names)


def _build_first(
    compilers: list[Compiler], sources: list[Path], cache: Path, names: list[str]
) -> ctypes.CDLL:
    """Return the library of the first compiler that can build it."""
    if not compilers:
        raise _UnavailableError("no C++ compiler is found (looked for `g++`, `c++`, `clang++`)")
    complaints = []
    for compiler, name in zip(compilers, names, strict=True):
        try:
            _build(compiler, sources, cache / name)
        except CompilerError as error:
            complaints.append(str(error))
            continue
        except OSError as error:
            raise _UnavailableError(
                f"the cache folder `{cache}` cannot be written: {error.strerror}"
            ) from error
        library = _read(cache / name)
        if library is not None:
            return library
        complaints.append(f"what `{compiler.command[0]}` builds cannot be loaded")
    raise _UnavailableError("; ".join(complaints))


def _build(compiler: Compiler, sources: list[Path], target: Path) -> None:
    """Put a library in the cache, all at once: another process may be doing the same."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix=".native-", dir=target.parent) as folder:
        library = compiler.build(sources, Path(folder))
        content = library.read_bytes()
        library.write_bytes(content + hashlib.sha256(content).digest())
        library.replace(target)


def _read(path: Path) -> ctypes.CDLL | None:
    """Return the library of a cached file, None if it is absent, damaged or of no use."""
    try:
        content = path.read_bytes()
        if hashlib.sha256(content[:-_DIGEST_SIZE]).digest() != content[-_DIGEST_SIZE:]:
            return None
        library = ctypes.CDLL(str(path))
        declare(library)
    except (OSError, AttributeError):
        return None
    return library


def _list(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    except RuntimeError as error:
        raise _UnavailableError("there is no home folder to keep them in") from error
    return root / "inkling"


def _key(sources: list[Path]) -> str:
    """Return what a library depends on besides its compiler: sources, flags and the CPU."""
    parts = [part for path in sources for part in (path.name, path.read_text(encoding="utf-8"))]
    return _digest(*parts, *FLAGS, platform.machine(), cpu_features())


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
