"""A named pipe that nobody writes to: opening it for reading would wait for ever."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 5.0


def error_from_pipe(read: Callable[[Path], object], pipe: Path) -> BaseException | None:
    """Make a pipe, read it in a thread, and return what was raised; None if it hangs or passes."""
    os.mkfifo(pipe)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            read(pipe)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    if thread.is_alive():
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        thread.join()
        return None
    return errors[0] if errors else None
