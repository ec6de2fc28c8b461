"""`inkling diff`: two adapters in any dialects, by what they add to the base model."""

import math
from pathlib import Path
from typing import Annotated

import typer

from inkling_cli.exit_codes import ExitCode
from inkling_cli.options import ModelOption, PlainFormatOption
from inkling_cli.output import Output, PlainFormat
from inkling_cli.render.difference import render_difference
from inkling_cli.render.difference_json import difference_object
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.comparison import plan_comparison
from inkling_runtime.adapter.model_spec import read_model_spec
from inkling_runtime.errors import InklingError

EXAMPLES = (
    "inkling diff ADAPTER CONVERTED",
    "inkling diff ADAPTER CONVERTED --model MODEL/config.json --tolerance 0.004",
    "inkling diff BEFORE AFTER --output-format json",
)


def diff(
    first: Annotated[Path, typer.Argument(metavar="FIRST", help="An adapter's folder.")],
    second: Annotated[Path, typer.Argument(metavar="SECOND", help="The other adapter's folder.")],
    model: ModelOption = None,
    tolerance: Annotated[
        float,
        typer.Option(
            metavar="RELATIVE",
            min=0.0,
            help="How far two deltas may be apart, relative to the larger one. By default each "
            "must be proven equal.",
        ),
    ] = 0.0,
    output_format: PlainFormatOption = PlainFormat.FULL,
) -> int:
    """Compare what two adapters add to the base model.

    Module by module, whatever their dialects: the distance of the deltas, not of the factors, and
    exact equality said as such. The exit code is 1 if a delta differs. Names and keys of
    adapter_config.json that differ are shown; by themselves they are no difference.
    """
    from inkling_runtime.adapter.distance import measure_difference

    if not math.isfinite(tolerance):
        raise InklingError(f"`--tolerance` is {tolerance}, expected a finite number")
    output = Output("diff", output_format)
    spec = read_model_spec(model) if model is not None else None
    comparison = plan_comparison(read_adapter(first), read_adapter(second), spec)
    with output.progress(comparison.nbytes) as advance:
        difference = measure_difference(comparison, advance)
    text = render_difference(difference, tolerance)
    output.show(text, difference_object(difference, tolerance))
    return ExitCode.FINDINGS if difference.beyond(tolerance) else ExitCode.CLEAN
