"""`inkling convert-adapter`: an adapter in another dialect, its effect unchanged."""

from pathlib import Path
from typing import Annotated

import typer

from inkling_cli.checks.launch.serving import serving_lines
from inkling_cli.exit_codes import ExitCode
from inkling_cli.options import DialectOption, ModelOption, PlainFormatOption
from inkling_cli.output import Output, PlainFormat
from inkling_cli.render.conversion import conversion_object, render_plan, render_result
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.convert.plan import plan_conversion
from inkling_runtime.adapter.dialects import require_dialect
from inkling_runtime.adapter.model_spec import read_model_spec

EXAMPLES = (
    "inkling convert-adapter ADAPTER --to vllm -o OUT",
    "inkling convert-adapter ADAPTER --to peft --model MODEL/config.json -o OUT",
    "inkling convert-adapter ADAPTER --to sglang -o OUT --dry-run",
)


def convert_adapter(
    adapter: Annotated[Path, typer.Argument(metavar="ADAPTER", help="The adapter's folder.")],
    to: Annotated[
        str, typer.Option("--to", metavar="DIALECT", help="tinker, vllm, sglang or peft.")
    ],
    out: Annotated[
        Path, typer.Option("--output", "-o", metavar="OUT", help="The folder to write.")
    ],
    dialect: DialectOption = None,
    model: ModelOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace OUT if it exists.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Cut rows of the padded vocabulary of lm_head even if not zero."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and write nothing.")
    ] = False,
    output_format: PlainFormatOption = PlainFormat.FULL,
) -> int:
    """Rewrite an adapter for an engine, every delta unchanged.

    Names, layouts and adapter_config.json are changed as the target needs them. Where rank or
    size must change, or a scaling must be rounded into B, that is said before anything is written.
    OUT is written beside its place and renamed: it is absent or whole.
    """
    from inkling_runtime.adapter.arrays import CONTENTS
    from inkling_runtime.adapter.convert.write import require_target, write_conversion

    output = Output("convert-adapter", output_format)
    target = require_dialect(to)
    spec = read_model_spec(model) if model is not None else None
    require_target(adapter, out, overwrite)
    source = read_adapter(adapter, dialect)
    conversion = plan_conversion(source, target, spec, CONTENTS, force=force)
    result = conversion_object(conversion, str(out), not dry_run)
    if dry_run:
        output.show(render_plan(conversion), result)
        return ExitCode.CLEAN
    for change in conversion.changes:
        output.note(change)
    with output.progress(conversion.nbytes) as advance:
        write_conversion(conversion, out, overwrite=overwrite, progress=advance)
    output.show(render_result(conversion, str(out), serving_lines(conversion, str(out))), result)
    return ExitCode.CLEAN
