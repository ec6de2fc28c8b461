"""`inkling merge` of adapters, for people and for programs."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from inkling_cli.render.conversion import conversion_object, render_plan, render_result
from inkling_cli.render.resize import kept_object, render_kept
from inkling_runtime.adapter.adapter import Adapter
from inkling_runtime.adapter.convert.plan import Conversion
from inkling_runtime.adapter.provenance.proven import Proof
from inkling_runtime.adapter.resize.kept import Resize

Input = tuple[Adapter, float]
"""An adapter and its weight."""


def render_merged_plan(conversion: Conversion, resize: Resize | None) -> Text:
    """Return the whole plan, then what is kept where the sum is resized."""
    text = render_plan(conversion)
    return text if resize is None else text.append("\n\n").append_text(render_kept(resize))


def render_merged(
    conversion: Conversion, resize: Resize | None, out: str, lines: tuple[str, ...], proof: Proof
) -> Text:
    """Return what is kept where the sum was resized, what was written and how to serve it."""
    text = render_result(conversion, out, lines, proof)
    return text if resize is None else render_kept(resize).append("\n\n").append_text(text)


def merged_object(
    conversion: Conversion, inputs: Sequence[Input], resize: Resize | None, out: str, written: bool
) -> dict[str, Any]:
    """Return the JSON object of a merged adapter, less `version` and `command`."""
    adapters = [
        {"path": str(adapter.path), "dialect": adapter.dialect.name, "weight": weight}
        for adapter, weight in inputs
    ]
    kept = {} if resize is None else kept_object(resize)
    return {"adapters": adapters} | conversion_object(conversion, out, written) | kept
