"""`inkling merge … --into MODEL`: adapters folded into the weights of a base checkpoint."""

from collections.abc import Sequence
from pathlib import Path

from inkling_cli.exit_codes import ExitCode
from inkling_cli.output import Output
from inkling_cli.render.merge_base import merge_object, render_merge_plan, render_merge_result
from inkling_runtime.adapter.ambiguity import read_certain_adapter
from inkling_runtime.adapter.model_spec import read_model_spec


def merge_into_base(
    adapters: Sequence[Path],
    model: Path,
    out: Path,
    *,
    weights: Sequence[float],
    dialects: Sequence[str | None],
    overwrite: bool,
    dry_run: bool,
    output: Output,
) -> int:
    """Write the base model with the adapters' deltas added; return the exit code.

    Args:
        adapters: their folders.
        model: the base model's folder.
        out: the folder to write.
        weights: a factor for each adapter.
        dialects: the one that each adapter is read in; None: its names tell.
        overwrite: whether `out` may be replaced.
        dry_run: whether only the plan is shown.
        output: where the answer goes.
    """
    from inkling_runtime.adapter.arrays import CONTENTS
    from inkling_runtime.merge.plan import plan_merge
    from inkling_runtime.merge.write import require_target, write_merge

    spec = read_model_spec(model) if model.is_dir() else None
    sources = [
        read_certain_adapter(adapter, dialect, spec)
        for adapter, dialect in zip(adapters, dialects, strict=True)
    ]
    merge = plan_merge(model, sources, weights, CONTENTS)
    require_target(merge, out, overwrite)
    result = merge_object(merge, str(out), not dry_run)
    if dry_run:
        output.show(render_merge_plan(merge), result)
        return ExitCode.CLEAN
    for note in merge.notes:
        output.note(note)
    with output.progress(merge.nbytes) as advance:
        write_merge(merge, out, overwrite=overwrite, progress=advance)
    output.show(render_merge_result(merge, str(out)), result)
    return ExitCode.CLEAN
