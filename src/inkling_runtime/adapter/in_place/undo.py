"""Take conversions in place back, and finish one that was interrupted."""

import hashlib
from enum import Enum, auto
from pathlib import Path

from inkling_runtime.adapter.adapter_weights import WEIGHTS_NAME
from inkling_runtime.adapter.in_place.journal import (
    JOURNAL_NAME,
    Journal,
    journal_path,
    read_journal,
    remove_journal,
)
from inkling_runtime.adapter.in_place.restore import State, remove_leftovers, restore, state_of
from inkling_runtime.adapter.in_place.taking_back import taking_back
from inkling_runtime.adapter.in_place.weights import OpenWeights, open_for_change
from inkling_runtime.adapter.regular_file import open_regular
from inkling_runtime.errors import InklingError


class Recovery(Enum):
    """What `recover` found to do."""

    NOTHING = auto()
    CONVERTED = auto()
    """It was interrupted, and is now as the conversion makes it; that can still be undone."""
    ORIGINAL = auto()
    """It was interrupted, and is now as before any conversion in place."""


def undo(folder: Path) -> None:
    """Bring a folder back to what it was before its first conversion in place, to the byte.

    Raises:
        InklingError: there was no conversion in place, somebody changed the folder since, or the
            disk refuses.
    """
    with open_for_change(folder) as weights:
        remove_leftovers(weights)
        journal = read_journal(folder)
        if journal is None:
            raise InklingError(
                f"`{folder}` holds no `{JOURNAL_NAME}`, expected the one that a conversion with "
                "`--in-place` leaves"
            )
        state = state_of(weights, journal)
        if state is State.OTHER:
            raise _changed_since(weights, journal)
        with taking_back(folder, lambda: _keep(weights, journal, state)):
            if state is not State.ORIGINAL:
                restore(weights, journal, journal.original)
        _forget(weights)


def recover(folder: Path) -> Recovery:
    """Finish a conversion or an undo that was interrupted, and return what was done.

    The folder becomes what the conversion makes it; where that cannot be, what it was before.

    Raises:
        InklingError: the disk refuses both, or the folder may not be changed.
    """
    with open_for_change(folder) as weights:
        remove_leftovers(weights)
        journal = read_journal(folder)
        state = state_of(weights, journal) if journal is not None else State.OTHER
        if journal is None or state is State.CONVERTED or state is State.OTHER:
            return Recovery.NOTHING
        if state is State.ORIGINAL:
            remove_journal(folder)
            return Recovery.NOTHING
        try:
            restore(weights, journal, journal.converted)
        except OSError:
            with taking_back(folder, lambda: _keep(weights, journal, State.CLOSED)):
                restore(weights, journal, journal.original)
            _forget(weights)
            return Recovery.ORIGINAL
        return Recovery.CONVERTED


def is_interrupted(folder: Path) -> bool:
    """Return whether a conversion or an undo in a folder was interrupted, so that none can read it.

    Raises:
        InklingError: there is a journal that no in-place conversion wrote, or a file beside it
            cannot be read.
    """
    journal = read_journal(folder)
    if journal is None:
        return False
    path = folder / WEIGHTS_NAME
    try:
        with open_regular(path) as file:
            return state_of(OpenWeights(folder, file.fileno()), journal) is State.CLOSED
    except FileNotFoundError:
        return False
    except OSError as error:
        raise InklingError(f"`{path}` cannot be read: {error.strerror or error}") from error


def _keep(weights: OpenWeights, journal: Journal, state: State) -> None:
    """Bring a folder whose undo stopped back to the conversion that it had."""
    if state is State.CONVERTED:
        restore(weights, journal, journal.converted)
    elif state is State.CLOSED:
        raise InklingError("it had been interrupted before")


def _forget(weights: OpenWeights) -> None:
    """Remove the journal of a folder that is as it was at first."""
    try:
        remove_journal(weights.folder)
    except OSError as error:
        raise InklingError(
            f"`{weights.folder}` is as it was at first, but its `{JOURNAL_NAME}` cannot be "
            f"removed: {error.strerror or error}"
        ) from error


def _changed_since(weights: OpenWeights, journal: Journal) -> InklingError:
    wanted = journal.converted
    size, expected = weights.size(), len(wanted.header) + journal.payload_bytes
    header = weights.read(0, len(wanted.header))
    if size != expected:
        what = f"`{weights.path}` has {size:,} bytes, expected {expected:,}"
    elif header != wanted.header:
        what = (
            f"`{weights.path}` has a header with the SHA-256 {_digest(header)}, "
            f"expected {_digest(wanted.header)}"
        )
    elif (config := weights.read_config()) != wanted.config:
        what = (
            f"`{weights.config_path}` has the SHA-256 {_digest(config)}, "
            f"expected {_digest(wanted.config)}"
        )
    else:
        what = f"`{weights.path}` has other numbers where the conversion wrote, expected its own"
    return InklingError(
        f"{what}: it changed since the conversion, so it is left as it is",
        f"remove `{journal_path(weights.folder)}` to keep it so",
    )


def _digest(data: bytes) -> str:
    return f"{hashlib.sha256(data).hexdigest()[:16]}…"
