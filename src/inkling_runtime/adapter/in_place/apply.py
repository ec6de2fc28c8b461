"""Make a planned conversion in place: as a whole, or not at all.

The journal is on the disk before the first byte changes. An error or Ctrl-C takes everything
back; after a kill or a power cut the weights are closed to every reader until `undo.recover`.
"""

import numpy as np

from inkling_runtime.adapter.arrays import load
from inkling_runtime.adapter.in_place.journal import (
    JOURNAL_NAME,
    Journal,
    Snapshot,
    read_journal,
    remove_journal,
    write_journal,
)
from inkling_runtime.adapter.in_place.plan import InPlacePlan
from inkling_runtime.adapter.in_place.restore import (
    State,
    close,
    is_at,
    put,
    remove_leftovers,
    restore,
    state_of,
)
from inkling_runtime.adapter.in_place.taking_back import taking_back
from inkling_runtime.adapter.in_place.weights import OpenWeights, open_for_change
from inkling_runtime.errors import InklingError


def apply_in_place(plan: InPlacePlan) -> None:
    """Change the folder as a plan says and leave the journal that an undo needs.

    A second conversion keeps the journal's first state: an undo goes back to the very beginning.

    Raises:
        InklingError: the folder changed since the plan was made, another conversion was
            interrupted in it, the file system cannot insert bytes, or the disk refuses. The folder
            is as it was, unless the message says otherwise.
    """
    if plan.is_empty:
        return
    with open_for_change(plan.folder, plan.other_way) as weights:
        _require_as_planned(weights, plan)
        former = _former_journal(weights)
        before = Snapshot(plan.old_header, plan.old_config, _old_patches(weights, plan))
        after = Snapshot(plan.new_header, plan.new_config, _new_patches(plan))
        journal = _compose(former, before, after, plan.payload_bytes)
        with taking_back(
            plan.folder, lambda: _take_back(weights, former, journal, before), plan.other_way
        ):
            _convert(weights, former, journal)


def _convert(weights: OpenWeights, former: Journal | None, journal: Journal) -> None:
    """Change the folder. At every moment its open header is one that its journal knows.

    Therefore a second conversion closes the weights before it exchanges the journal.
    """
    remove_leftovers(weights)
    if former is None:
        write_journal(weights.folder, journal)
    close(weights, journal.payload_bytes, len(journal.converted.header))
    if former is not None:
        write_journal(weights.folder, journal)
    put(weights, journal.converted, journal.payload_bytes)


def _take_back(
    weights: OpenWeights, former: Journal | None, journal: Journal, before: Snapshot
) -> None:
    """Bring the folder back to what it was, the journal before the weights open again."""
    if former is not None and read_journal(weights.folder) != former:
        write_journal(weights.folder, former)
    if not is_at(weights, before, journal.payload_bytes):
        restore(weights, journal, before)
    if former is None:
        remove_journal(weights.folder)


def _require_as_planned(weights: OpenWeights, plan: InPlacePlan) -> None:
    as_planned = Snapshot(plan.old_header, plan.old_config)
    if not is_at(weights, as_planned, plan.payload_bytes):
        raise InklingError(f"`{weights.folder}` changed since its conversion was planned")


def _former_journal(weights: OpenWeights) -> Journal | None:
    """Return the journal of an earlier conversion, if it is one that was made and not undone."""
    journal = read_journal(weights.folder)
    if journal is None:
        return None
    state = state_of(weights, journal)
    if state is State.ORIGINAL:
        return None
    if state is State.CONVERTED:
        return journal
    raise InklingError(
        f"`{weights.folder}` is not as the conversion in its `{JOURNAL_NAME}` left it",
        f"remove `{weights.folder / JOURNAL_NAME}` if that conversion need not be undone",
    )


def _old_patches(weights: OpenWeights, plan: InPlacePlan) -> dict[int, bytes]:
    return {
        patch.tensor.start - len(plan.old_header): weights.read(
            patch.tensor.start, patch.tensor.nbytes
        )
        for patch in plan.patches
    }


def _new_patches(plan: InPlacePlan) -> dict[int, bytes]:
    return {
        patch.tensor.start - len(plan.old_header): np.ascontiguousarray(load(patch.array)).tobytes()
        for patch in plan.patches
    }


def _compose(
    former: Journal | None, before: Snapshot, after: Snapshot, payload_bytes: int
) -> Journal:
    """Return the journal that goes back to the first state of all."""
    if former is None:
        return Journal(before, after, payload_bytes)
    first, latest = former.original, former.converted
    return Journal(
        Snapshot(first.header, first.config, {**before.patches, **first.patches}),
        Snapshot(after.header, after.config, {**latest.patches, **after.patches}),
        payload_bytes,
    )
