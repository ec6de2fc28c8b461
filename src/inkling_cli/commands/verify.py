"""`inkling verify`: a written adapter against the record of what it was made of."""

from pathlib import Path
from typing import Annotated

import typer

from inkling_cli.exit_codes import ExitCode
from inkling_cli.options import ModelOption, PlainFormatOption
from inkling_cli.output import Output, PlainFormat
from inkling_runtime.adapter.model_spec import read_model_spec
from inkling_runtime.errors import InklingError

EXAMPLES = (
    "inkling verify OUT",
    "inkling verify OUT --source ADAPTER",
    "inkling verify OUT --source ADAPTER --model MODEL/config.json --output-format json",
)


def verify(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="A folder that inkling wrote, with its record.")
    ],
    source: Annotated[
        list[Path] | None,
        typer.Option(
            "--source",
            metavar="ADAPTER",
            help="The adapter it was made of; once for each of several, in the same order. "
            "By default the recorded path, if it is still there.",
        ),
    ] = None,
    model: ModelOption = None,
    output_format: PlainFormatOption = PlainFormat.FULL,
) -> int:
    """Check a written adapter against its conversion.json.

    Every tensor's bytes and adapter_config.json are compared with the recorded SHA-256. Where the
    source is at hand, its bytes are checked as well, and every delta is proven to be the source's
    again. The exit code is 1 if anything differs. The record is no signature: it shows what
    changed by accident, not what somebody changed together with it.
    """
    from inkling_cli.render.verify import check_object, render_check
    from inkling_runtime.adapter.provenance.run_check import plan_check, run_check

    output = Output("verify", output_format)
    spec = read_model_spec(model) if model is not None else None
    plan = plan_check(out, source or ())
    with output.progress(plan.nbytes) as advance:
        check = run_check(plan, spec, advance)
    if source and check.is_clean and check.not_compared is not None and plan.is_conversion:
        raise InklingError(
            f"the deltas of `{out}` and `{source[0]}` are not compared: {check.not_compared}"
        )
    output.show(render_check(check), check_object(check))
    return ExitCode.CLEAN if check.is_clean else ExitCode.FINDINGS
