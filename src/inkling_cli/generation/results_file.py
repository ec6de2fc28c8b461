"""The file that results are written to as they come (JSONL), and going on with a broken-off one.

A result is a line, written whole and at once, so that whatever ends the run leaves all that was
done. Going on keeps the lines that are done and drops a torn last line and those with an error.
"""

import fcntl
import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from inkling_cli.generation.tasks import Task
from inkling_runtime.errors import InklingError


class ResultsFile:
    """An open file of results.

    Nothing that was there is given up before `begin`; a new one that gets no result is not left.

    Args:
        path: where it is.
        resume: go on with what is there.
        overwrite: replace what is there.

    Raises:
        InklingError: it exists and is to be neither gone on with nor replaced, it is not a regular
            file or cannot be written, or another run writes it.
    """

    def __init__(self, path: Path, *, resume: bool, overwrite: bool) -> None:
        self.path = path
        if path.exists() and not (resume or overwrite):
            raise InklingError(
                f"`{path}` exists", "go on with it by `--resume`, or replace it by `--overwrite`"
            )
        if not path.parent.exists():
            raise InklingError(f"the folder `{path.parent}` of `{path.name}` does not exist")
        self._keeps, self._is_new = resume, not path.exists()
        self._file = _open_alone(path)

    def find_done(self, tasks: Sequence[Task]) -> set[str | int]:
        """Return the ids of tasks whose result is there and stays.

        Raises:
            InklingError: a line is not a result, or one of another request under the same id.
        """
        if not self._keeps:
            return set()
        fingerprints = {task.id: task.fingerprint for task in tasks}
        done: set[str | int] = set()
        for number, line in enumerate(_whole_lines(self._read()), start=1):
            result = _parse_result(line, number, self.path)
            if result["error"] is not None:
                continue
            known = fingerprints.get(result["id"])
            if known is not None and known != result["request"]:
                raise InklingError(
                    f"`{self.path}`, line {number}: the result `{result['id']}` is that of another "
                    "prompt, adapter or sampling than is asked for now",
                    "use another file, or replace it by `--overwrite`",
                )
            done.add(result["id"])
        return done

    def begin(self) -> None:
        """Give up what does not stay: everything, or a torn last line and results with an error.

        Raises:
            InklingError: the file cannot be written.
        """
        content = self._read()
        lines = _whole_lines(content) if self._keeps else []
        kept = b"".join(line for line in lines if json.loads(line)["error"] is None)
        if kept == content:
            return
        try:
            self._replace(kept)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def add(self, result: Mapping[str, Any]) -> None:
        """Write a result.

        Raises:
            InklingError: there is no room, or the file cannot be written any more.
        """
        line = json.dumps(result, ensure_ascii=False) + "\n"
        try:
            # Half of a surrogate pair has no UTF-8; JSON takes the escape.
            self._file.write(line.encode("utf-8", "backslashreplace"))
            self._file.flush()
        except OSError as error:
            raise _unwritable(self.path, error, "`--resume` goes on with what is there") from error

    def close(self) -> None:
        """Make sure that all of it is on the disk; a new file without any result is removed."""
        if self._file.closed:
            return
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
            if self._is_new and os.fstat(self._file.fileno()).st_size == 0:
                self.path.unlink(missing_ok=True)

    def _read(self) -> bytes:
        self._file.seek(0)
        return self._file.read()

    def _replace(self, content: bytes) -> None:
        """Replace the content: whole, or as it was."""
        target = self.path.resolve()
        fresh = target.with_name(f".{target.name}.new")
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(target)
        self._file.close()
        self._file = _open_alone(self.path)


def _open_alone(path: Path) -> BinaryIO:
    """Return a file opened for reading and adding, locked against other runs."""
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            raise InklingError(f"`{path}` is not a regular file, expected one to go on with")
        file = path.open("ab+")
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise InklingError(f"another run writes to `{path}`, expected to be alone") from error
    return file


def _whole_lines(content: bytes) -> list[bytes]:
    """Return the lines with their ends; a torn last one is none."""
    return [line + b"\n" for line in content.split(b"\n")[:-1]]


def _unwritable(path: Path, error: OSError, hint: str | None = None) -> InklingError:
    return InklingError(f"`{path}` cannot be written: {error.strerror or error}", hint)


def _parse_result(line: bytes, number: int, path: Path) -> dict[str, Any]:
    try:
        result = json.loads(line)
    except (ValueError, RecursionError):
        result = None
    fields = result if isinstance(result, dict) else {}
    if not {"request", "error"} <= fields.keys() or not isinstance(fields.get("id"), str | int):
        raise InklingError(
            f"`{path}`, line {number} is not a result of `inkling generate`",
            "use another file, or replace it by `--overwrite`",
        )
    return fields
