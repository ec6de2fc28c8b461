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
    folder = str(plan.folder)
    dialects = f"{conversion.source.dialect.name} → {conversion.dialect.name}"
    text = Text.assemble(("changed ", "bold"), printable(folder), f": {dialects}, ")
    text.append(f"{_changes(plan)}\n")
    add_serving(text, conversion, lines)
    if not plan.is_empty:
        command = f"inkling convert-adapter {shell_word(folder)} --undo"
        text.append("  undo: ", "bold cyan").append(f"{printable(command)}\n")
    text.rstrip()
    return text


def _changes(plan: InPlacePlan) -> str:
    if plan.is_empty:
        return "nothing: it is as it would be"
    parts = ["the header"]
    if plan.inserted_bytes:
        parts.append(f"{plan.inserted_bytes:,} bytes inserted in front of the numbers")
    if plan.patches:
        rows = format_count(len(plan.patches), "tensor")
        parts.append(f"the rows of {rows} ({plan.patched_bytes:,} bytes)")
    return ", ".join(parts) + f" of {plan.payload_bytes:,} bytes"


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
