"""The file that results are written to as they come (JSONL), and going on with a broken-off one.

A result is a line, written whole and at once, so that whatever ends the run leaves all that was
done. Going on keeps the lines that are done and drops a torn last line and those with an error.
"""

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from inkling_cli.generation.tasks import Task
from inkling_runtime.errors import InklingError


class ResultsFile:
    """An open file of results.

    Args:
        path: where it is.
        resume: go on with what is there.
        overwrite: replace what is there.

    Raises:
        InklingError: it exists and is to be neither gone on with nor replaced, it cannot be
            written, or another run writes it.
    """

    def __init__(self, path: Path, *, resume: bool, overwrite: bool) -> None:
        self.path = path
        if path.exists() and not (resume or overwrite):
            raise InklingError(
                f"`{path}` exists", "go on with it by `--resume`, or replace it by `--overwrite`"
            )
        try:
            self._file: TextIO = path.open("a+", encoding="utf-8")
        except OSError as error:
            raise InklingError(f"`{path}` cannot be written: {error.strerror or error}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise InklingError(f"another run writes to `{path}`, expected to be alone") from error
        if not resume:
            self._file.truncate(0)

    def find_done(self, tasks: Sequence[Task]) -> set[str | int]:
        """Return the ids of tasks whose result is there; what is not a result is dropped.

        Raises:
            InklingError: a line is not a result, or one of another request under the same id.
        """
        self._file.seek(0)
        text = self._file.read()
        whole = text[: text.rfind("\n") + 1]
        fingerprints = {task.id: task.fingerprint for task in tasks}
        done: set[str | int] = set()
        kept = []
        for number, line in enumerate(whole.splitlines(keepends=True), start=1):
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
            kept.append(line)
        if len(kept) != len(whole.splitlines()) or whole != text:
            self._replace("".join(kept))
        return done

    def add(self, result: Mapping[str, Any]) -> None:
        """Write a result.

        Raises:
            InklingError: there is no room, or the file cannot be written any more.
        """
        try:
            self._file.write(json.dumps(result, ensure_ascii=False) + "\n")
            self._file.flush()
        except OSError as error:
            raise InklingError(
                f"`{self.path}` cannot be written: {error.strerror or error}",
                "`--resume` goes on with what is there",
            ) from error

    def close(self) -> None:
        """Make sure that all of it is on the disk."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def _replace(self, text: str) -> None:
        """Replace the content: whole, or as it was."""
        fresh = self.path.with_name(f".{self.path.name}.new")
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        self._file.close()
        self._file = self.path.open("a+", encoding="utf-8")
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _parse_result(line: str, number: int, path: Path) -> dict[str, Any]:
    try:
        result = json.loads(line)
    except (ValueError, RecursionError):
        result = None
    if not isinstance(result, dict) or not {"id", "request", "error"} <= result.keys():
        raise InklingError(
            f"`{path}`, line {number} is not a result of `inkling generate`",
            "use another file, or replace it by `--overwrite`",
        )
    return result
