"""Bring a folder to a snapshot, from whatever state it is in, so that no reader is misled between.

While anything is half done the weights are closed: their length prefix says more than any reader
of the format accepts, or zero, and it is written last. So an open header is always a whole state.
"""

from enum import Enum, auto

from inkling_runtime.adapter.flushed_folder import flush_folder
from inkling_runtime.adapter.in_place.durable import remove_leftover, replace_file
from inkling_runtime.adapter.in_place.journal import Journal, Snapshot, journal_path
from inkling_runtime.adapter.in_place.room import (
    BLOCK_BYTES,
    close_gap,
    insert_room,
    remove_room,
)
from inkling_runtime.adapter.in_place.weights import OpenWeights
from inkling_runtime.errors import InklingError

_CLOSED = 1 << 63
"""Set in the length prefix of weights that are being changed; the rest is the true length."""

_SMALLEST_BLOCK = 512


class State(Enum):
    """Where the weights are, seen from their journal."""

    ORIGINAL = auto()
    CONVERTED = auto()
    CLOSED = auto()
    """A conversion or an undo was interrupted."""
    OTHER = auto()
    """Somebody else changed them since."""


def state_of(weights: OpenWeights, journal: Journal) -> State:
    """Return where the weights are. Changes nothing."""
    if is_at(weights, journal.original, journal.payload_bytes):
        return State.ORIGINAL
    if is_at(weights, journal.converted, journal.payload_bytes):
        return State.CONVERTED
    if _gap(weights, journal) or _is_closed(weights, journal):
        return State.CLOSED
    return State.OTHER


def is_at(weights: OpenWeights, snapshot: Snapshot, payload_bytes: int) -> bool:
    """Return whether the folder is as a snapshot has it."""
    start = len(snapshot.header)
    return (
        weights.size() == start + payload_bytes
        and weights.read(0, start) == snapshot.header
        and weights.read_config() == snapshot.config
        and all(
            weights.read(start + place, len(data)) == data
            for place, data in snapshot.patches.items()
        )
    )


def restore(weights: OpenWeights, journal: Journal, snapshot: Snapshot) -> None:
    """Bring a folder that is closed or at a snapshot to a snapshot of the same payload.

    Raises:
        InklingError: a power cut left blocks where nobody can tell which they are.
        OSError: the file system cannot insert or remove bytes, or the disk refuses. The weights
            stay closed.
    """
    _finish_move(weights, journal)
    close(weights, journal.payload_bytes, len(snapshot.header))
    put(weights, snapshot, journal.payload_bytes)


def close(weights: OpenWeights, payload_bytes: int, header_bytes: int) -> None:
    """Make the weights unreadable, with at least so much room in front of the payload."""
    now = weights.size() - payload_bytes
    if header_bytes > now:
        insert_room(weights.descriptor, header_bytes - now)
    else:
        weights.write(0, (_CLOSED | (now - 8)).to_bytes(8, "little"))
    weights.sync()


def put(weights: OpenWeights, snapshot: Snapshot, payload_bytes: int) -> None:
    """Bring closed weights with room enough, and the config, to a snapshot, and open them.

    Surplus room goes last: the header is written where it lies after that.
    """
    _put_config(weights, snapshot.config)
    start = weights.size() - payload_bytes
    surplus = start - len(snapshot.header)
    for place, data in snapshot.patches.items():
        weights.write(start + place, data)
    weights.write(surplus + 8, snapshot.header[8:])
    weights.sync()
    weights.write(surplus, snapshot.header[:8])
    weights.sync()
    if surplus:
        remove_room(weights.descriptor, surplus)
        weights.sync()


def _put_config(weights: OpenWeights, config: bytes) -> None:
    """Bring the config to a snapshot; one that is there already needs no room on a full disk."""
    if weights.read_config() == config:
        flush_folder(weights.folder)
    else:
        replace_file(weights.config_path, config, weights.config_path)


def remove_leftovers(weights: OpenWeights) -> None:
    """Remove what a killed process left half written beside the files."""
    remove_leftover(weights.config_path)
    remove_leftover(journal_path(weights.folder))


def _is_closed(weights: OpenWeights, journal: Journal) -> bool:
    now, said = weights.size() - journal.payload_bytes, weights.header_length()
    if said & _CLOSED:
        return 8 + (said ^ _CLOSED) == now
    inserted = now - len(journal.original.header)
    return said == 0 and inserted > 0 and inserted % BLOCK_BYTES == 0


def _gap(weights: OpenWeights, journal: Journal) -> int:
    """Return the bytes of the hole that a power cut left while blocks were moved, 0 for none.

    The size is then the longer file's, but the first block is the shorter one's.
    """
    now, said = weights.size() - journal.payload_bytes, weights.header_length()
    length = 8 + said
    if not said or length >= now or (now - length) % BLOCK_BYTES:
        return 0
    known = (journal.original.header, journal.converted.header)
    start = weights.read(0, min(length, _SMALLEST_BLOCK))
    return now - length if any(header.startswith(start) for header in known) else 0


def _finish_move(weights: OpenWeights, journal: Journal) -> None:
    gap = _gap(weights, journal)
    if not gap:
        return
    if not close_gap(weights.descriptor, gap):
        raise InklingError(
            f"`{weights.path}` is {gap} bytes longer than its header says, and where the surplus "
            "lies cannot be told: the machine stopped while its blocks were moved",
            "fetch the adapter again",
        )
    weights.sync()
