"""`inkling check-adapter`: what a consumer will really do with an adapter."""

from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from inkling_cli.checks.adapter import Consumer, check_adapter, read_subject
from inkling_cli.checks.finding import Report, sort_findings
from inkling_cli.exit_codes import FailOn, exit_code_of
from inkling_cli.options import DialectOption, FailOnOption, FindingsFormatOption, ModelOption
from inkling_cli.output import Output, OutputFormat
from inkling_cli.render.adapters import adapter_object, what_was_checked
from inkling_runtime.adapter.adapter import WEIGHTS_NAME
from inkling_runtime.adapter.lora_config import CONFIG_NAME
from inkling_runtime.adapter.model_spec import read_model_spec

EXAMPLES = (
    "inkling check-adapter ADAPTER --engine vllm",
    "inkling check-adapter ADAPTER --model MODEL/config.json",
    "inkling check-adapter ADAPTER --engine sglang --output-format github",
)


def check(
    adapters: Annotated[
        list[Path],
        typer.Argument(metavar="ADAPTER", help="The adapter's folder, or a file in it."),
    ],
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
    every module is also compared with the base model's layers and widths. Several adapters are
    checked one by one.
    """
    spec = read_model_spec(model) if model is not None else None
    folders = dict.fromkeys(map(_folder_of, adapters))
    subjects = [read_subject(folder, spec, dialect) for folder in folders]
    consumers = engine or list(Consumer)
    findings = chain.from_iterable(check_adapter(subject, consumers) for subject in subjects)
    report = Report("check-adapter", sort_findings(findings))
    details: dict[str, Any] = {"adapters": [adapter_object(subject) for subject in subjects]}
    if len(subjects) == 1:
        (subject,) = subjects
        details = {"adapter": subject.path, "dialect": subject.adapter.dialect.name, **details}
    checked = what_was_checked(subjects, consumers)
    Output("check-adapter", output_format).show_report(report, checked, details)
    return exit_code_of(report, fail_on)


def _folder_of(path: Path) -> Path:
    """Return an adapter's folder, given itself or by one of its two files."""
    return path.parent if path.name in (CONFIG_NAME, WEIGHTS_NAME) else path
