"""Run a change as a whole or not at all, and say in an error how it ended."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from inkling_runtime.adapter.disk_errors import said_of_full
from inkling_runtime.adapter.in_place.room import RoomError
from inkling_runtime.adapter.interrupts import interrupts_held
from inkling_runtime.errors import InklingError


@contextmanager
def taking_back(
    folder: Path, take_back: Callable[[], None], hint: str | None = None
) -> Iterator[None]:
    """Run a block that changes a folder; on any exception, Ctrl-C included, take it back.

    Args:
        folder: of the adapter.
        take_back: brings it back to what it was.
        hint: what to do where the file system cannot insert or remove bytes.

    Raises:
        InklingError: the disk refuses, and how the folder was left.
    """
    try:
        yield
    except BaseException as reason:
        try:
            with interrupts_held():
                take_back()
        except (OSError, InklingError) as error:
            raise InklingError(
                f"the change of `{folder}` stopped ({_said(reason)}) and could not be taken back "
                f"({_said(error)}); its weights may be closed to every reader",
                f"`inkling convert-adapter {shlex.quote(str(folder))} --undo` takes it back",
            ) from reason
        if isinstance(reason, OSError):
            raise _error_of(folder, reason, hint) from reason
        raise


def _error_of(folder: Path, error: OSError, hint: str | None) -> InklingError:
    if full := said_of_full(error):
        return InklingError(f"{full}, `{folder}` is as it was")
    return InklingError(
        f"`{folder}` cannot be changed: {_said(error)}; it is as it was",
        hint if isinstance(error, RoomError) else None,
    )


def _said(error: BaseException) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error) or type(error).__name__
