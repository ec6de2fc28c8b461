"""Finding a C++ compiler and building the kernels with it.

Whether a compiler works is found out by using it: there is no trial program. A compiler that is
found but cannot build is skipped for the next one.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fopenmp", "-fPIC")
"""The vector width follows the machine (`-march=native`); fused multiply-add is allowed, other
reordering of sums is not: results must not depend on how many rows there are."""

_CANDIDATES = ("g++", "c++", "clang++")
_TIME_LIMIT_S = 120


class CompilerError(Exception):
    """A compiler that could not build the kernels; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler: the words of its command."""

    command: tuple[str, ...]

    def identity(self) -> str:
        """Return what changes when the compiler is replaced, without running it."""
        path = Path(self.command[0]).resolve()
        status = path.stat()
        return f"{path} {self.command[1:]} {status.st_size} {status.st_mtime_ns}"

    def build(self, sources: list[Path], folder: Path) -> Path:
        """Compile the sources side by side and link them; return the library in `folder`.

        Raises:
            CompilerError: a source does not compile, or the linker refuses.
        """
        objects = [folder / f"{source.stem}.o" for source in sources]
        running = [
            self._start(["-c", str(source), "-o", str(target)])
            for source, target in zip(sources, objects, strict=True)
        ]
        try:
            for process in running:
                self._finish(process)
            library = folder / "kernels.so"
            link = self._start(["-shared", *map(str, objects), "-o", str(library)])
            running.append(link)
            self._finish(link)
        finally:
            for process in running:
                if process.poll() is None:
                    process.kill()
                process.communicate()
        return library

    def _start(self, arguments: list[str]) -> "subprocess.Popen[str]":
        try:
            return subprocess.Popen(
                [*self.command, *FLAGS, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise CompilerError(f"`{self.command[0]}` cannot be run: {error.strerror}") from error

    def _finish(self, process: "subprocess.Popen[str]") -> None:
        try:
            _, complaints = process.communicate(timeout=_TIME_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise CompilerError(f"`{self.command[0]}` takes more than {_TIME_LIMIT_S} s") from error
        if process.returncode:
            raise CompilerError(
                f"`{self.command[0]}` ends with status {process.returncode}: "
                + _first_complaint(complaints)
            )


def iter_compilers() -> Iterator[Compiler]:
    """Yield the compilers of this machine: the one that `CXX` names, then the usual ones."""
    seen = set()
    for words in (shlex.split(os.environ.get("CXX", "")), *([name] for name in _CANDIDATES)):
        path = shutil.which(words[0]) if words else None
        if path is None:
            continue
        command = (path, *words[1:])
        key = (Path(path).resolve(), *words[1:])
        if key not in seen:
            seen.add(key)
            yield Compiler(command)


def _first_complaint(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
