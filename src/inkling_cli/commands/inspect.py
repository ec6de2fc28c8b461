"""`inkling inspect`: what an adapter is."""

from pathlib import Path
from typing import Annotated

import typer

from inkling_cli.exit_codes import ExitCode
from inkling_cli.options import DialectOption, ModelOption, PlainFormatOption
from inkling_cli.output import Output, PlainFormat
from inkling_cli.render.inspection import inspection_object, render_inspection
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.inspection import inspect_adapter
from inkling_runtime.adapter.model_spec import read_model_spec

EXAMPLES = (
    "inkling inspect ADAPTER",
    "inkling inspect ADAPTER --model MODEL/config.json",
    "inkling inspect ADAPTER --output-format json",
)


def inspect(
    adapter: Annotated[Path, typer.Argument(metavar="ADAPTER", help="The adapter's folder.")],
    model: ModelOption = None,
    dialect: DialectOption = None,
    output_format: PlainFormatOption = PlainFormat.FULL,
) -> int:
    """Show what an adapter is.

    Its dialect, ranks and scalings, how experts are stored, and which layers are adapted; with
    --model also what does not fit the base model and what of it is not adapted.
    """
    from inkling_runtime.adapter.arrays import CONTENTS

    spec = read_model_spec(model) if model is not None else None
    inspection = inspect_adapter(read_adapter(adapter, dialect), spec, CONTENTS)
    output = Output("inspect", output_format)
    output.show(render_inspection(inspection), inspection_object(inspection))
    return ExitCode.CLEAN
