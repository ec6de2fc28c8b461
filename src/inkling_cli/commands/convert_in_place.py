"""`inkling convert-adapter --in-place` and `--undo`: the adapter changed where it lies."""

from collections.abc import Callable
from pathlib import Path

from inkling_cli.checks.launch.serving import serving_lines
from inkling_cli.exit_codes import ExitCode
from inkling_cli.output import Output
from inkling_cli.render.in_place import (
    in_place_object,
    render_in_place,
    render_in_place_plan,
    render_undone,
    undone_object,
)
from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.in_place.plan import plan_in_place
from inkling_runtime.adapter.in_place.undo import Recovery, is_interrupted, recover, undo


def convert_in_place(
    adapter: Path, plan_conversion: Callable[[], Conversion], *, dry_run: bool, output: Output
) -> int:
    """Change an adapter's folder as a plan says; return the exit code.

    An earlier conversion in place that was interrupted is finished first.
    """
    from inkling_runtime.adapter.in_place.apply import apply_in_place

    if is_interrupted(adapter):
        _tell(recover(adapter), adapter, output)
    conversion = plan_conversion()
    plan = plan_in_place(conversion)
    result = in_place_object(conversion, plan, is_written=not dry_run)
    if dry_run:
        output.show(render_in_place_plan(conversion, plan), result)
        return ExitCode.CLEAN
    for change in conversion.changes:
        output.note(change)
    apply_in_place(plan)
    lines = serving_lines(conversion, str(adapter))
    output.show(render_in_place(conversion, plan, lines), result)
    return ExitCode.CLEAN


def undo_in_place(adapter: Path, output: Output) -> int:
    """Bring a folder back to what it was before `--in-place`; return the exit code."""
    undo(adapter)
    output.show(render_undone(adapter), undone_object(adapter))
    return ExitCode.CLEAN


def _tell(recovery: Recovery, adapter: Path, output: Output) -> None:
    if recovery is Recovery.CONVERTED:
        output.note(f"the earlier conversion of `{adapter}` was interrupted and is finished now")
    elif recovery is Recovery.ORIGINAL:
        output.note(f"the earlier conversion of `{adapter}` was interrupted and is taken back now")
