"""Options that several commands share, each said once: its spelling, its help, its type."""

from pathlib import Path
from typing import Annotated

import typer

from inkling_cli.exit_codes import FailOn
from inkling_cli.output import OutputFormat, PlainFormat

FindingsFormatOption = Annotated[
    OutputFormat,
    typer.Option(
        "--output-format",
        help="How to show findings: for people, one line each, or for programs.",
    ),
]
"""For commands that judge an input."""

PlainFormatOption = Annotated[
    PlainFormat,
    typer.Option("--output-format", help="How to show the answer: for people or for programs."),
]
"""For commands without findings."""

FailOnOption = Annotated[
    FailOn,
    typer.Option("--fail-on", help="The least severity of a finding that makes the exit code 1."),
]

ModelOption = Annotated[
    Path | None,
    typer.Option("--model", metavar="DIR|config.json", help="The base model: for its sizes."),
]
"""For commands that may look at the base model's config."""

DialectOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="DIALECT",
        help="Read the adapter in this dialect: tinker, vllm, sglang or peft. "
        "By default its names tell.",
    ),
]
"""For commands that read one adapter."""
