"""`inkling convert-adapter --in-place` and `--undo` for people and for programs."""

from pathlib import Path
from typing import Any

from rich.text import Text

from inkling_cli.checks.shell_word import shell_word
from inkling_cli.render.conversion import add_serving, conversion_object, render_plan
from inkling_cli.render.printable import printable
from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.in_place.plan import InPlacePlan
from inkling_runtime.errors import format_count


def render_in_place_plan(conversion: Conversion, plan: InPlacePlan) -> Text:
    """Return what would change."""
    return render_plan(conversion).append(f"\n  in place: {_changes(plan)}")


def render_in_place(conversion: Conversion, plan: InPlacePlan, lines: tuple[str, ...]) -> Text:
    """Return what was changed, how to serve it, and how to take it back."""
    folder, dialect = str(plan.folder), conversion.dialect.name
    if plan.is_empty:
        text = Text.assemble(("unchanged: ", "bold"), printable(folder), f" is {dialect} already\n")
    else:
        text = Text.assemble(("changed ", "bold"), printable(folder))
        text.append(f": {conversion.source.dialect.name} → {dialect}, {_changes(plan)}\n")
    add_serving(text, conversion, lines)
    if not plan.is_empty:
        command = f"inkling convert-adapter {shell_word(folder)} --undo"
        text.append("  undo: ", "bold cyan").append(f"{printable(command)}\n")
    text.rstrip()
    return text


def _changes(plan: InPlacePlan) -> str:
    if plan.is_empty:
        return "nothing changes"
    room = f" with {plan.inserted_bytes:,} bytes more room" if plan.inserted_bytes else ""
    rows = ""
    if plan.patches:
        rows = (
            f", rows of {format_count(len(plan.patches), 'tensor')} in another order "
            f"({plan.patched_bytes:,} of {plan.payload_bytes:,} bytes)"
        )
    return f"a new header{room}{rows}"


def in_place_object(conversion: Conversion, plan: InPlacePlan, is_written: bool) -> dict[str, Any]:
    """Return the JSON object, less `version` and `command`."""
    found = conversion_object(conversion, str(plan.folder), is_written)
    place = {"inserted_bytes": plan.inserted_bytes, "patched_bytes": plan.patched_bytes}
    return found | {"in_place": place}


def render_undone(folder: Path) -> Text:
    """Return that a folder is as it was."""
    return Text.assemble(("undone: ", "bold"), printable(str(folder)), " is as it was at first")


def undone_object(folder: Path) -> dict[str, Any]:
    """Return the JSON object, less `version` and `command`."""
    return {"out": str(folder), "undone": True}
