"""`inkling check-adapter`: what a consumer will really do with an adapter."""

from pathlib import Path
from typing import Annotated

import typer

from inkling_cli.checks.adapter import Consumer, check_adapter, read_subject
from inkling_cli.checks.finding import Report
from inkling_cli.exit_codes import FailOn, exit_code_of
from inkling_cli.options import DialectOption, FailOnOption, FindingsFormatOption, ModelOption
from inkling_cli.output import Output, OutputFormat
from inkling_runtime.adapter.model_spec import read_model_spec

EXAMPLES = (
    "inkling check-adapter ADAPTER --engine vllm",
    "inkling check-adapter ADAPTER --model MODEL/config.json",
    "inkling check-adapter ADAPTER --engine sglang --output-format github",
)


def check(
    adapter: Annotated[Path, typer.Argument(metavar="ADAPTER", help="The adapter's folder.")],
    engine: Annotated[
        list[Consumer] | None,
        typer.Option(help="Who is to apply it; all by default. Repeatable."),
    ] = None,
    model: ModelOption = None,
    dialect: DialectOption = None,
    output_format: FindingsFormatOption = OutputFormat.FULL,
    fail_on: FailOnOption = FailOn.ERROR,
) -> int:
    """Check what an engine drops, misapplies or refuses.

    Most of it happens without a message. Without --model the adapter is checked alone; with it,
    every module is also compared with the base model's layers and widths.
    """
    spec = read_model_spec(model) if model is not None else None
    subject = read_subject(adapter, spec, dialect)
    consumers = engine or list(Consumer)
    report = Report("check-adapter", check_adapter(subject, consumers))
    names = ", ".join(consumer.display_name for consumer in consumers)
    checked = f"{len(subject.adapter.modules)} modules for {names}"
    details = {"adapter": str(adapter), "dialect": subject.adapter.dialect.name}
    Output("check-adapter", output_format).show_report(report, checked, details)
    return exit_code_of(report, fail_on)
