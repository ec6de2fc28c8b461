"""The near end of `worker.py`: a worker as an object whose calls wait for the answer."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inkling_runtime.threads import settle_threads

SCRIPT = Path(__file__).with_name("worker.py")


def _our_settings() -> dict[str, str]:
    settings: dict[str, str] = {}
    settle_threads(environment=settings)
    return settings


OUR_SETTINGS = _our_settings()
"""The environment that the runtime gives itself before it imports torch."""


class WorkerError(Exception):
    """A worker could not do what it was asked, or is gone."""


class Worker:
    """A worker of one side; leave its `with` block to end it.

    Args:
        side: `inkling`, `transformers` or `memory`.
        settings: what is set for its threads; of `OUR_SETTINGS` nothing else reaches it.
    """

    def __init__(self, side: str, settings: Mapping[str, str]) -> None:
        self.side = side
        inherited = {key: value for key, value in os.environ.items() if key not in OUR_SETTINGS}
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), side],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**inherited, "HF_HUB_OFFLINE": "1", **settings},
            text=True,
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Call by name and return the answer.

        Raises:
            WorkerError: the call ended in an exception, which is on stderr, or the worker is gone.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps([name, arguments]) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerError(f"the worker of {self.side} ended with {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{self.side}, {name}: {answer['error']}")
        return dict(answer)
