"""Options that several commands share, each said once: its spelling, its help, its type."""

from pathlib import Path
from typing import Annotated

import typer

from inkling_cli.checks.engine import Engine
from inkling_cli.exit_codes import FailOn
from inkling_cli.output import OutputFormat, PlainFormat
from inkling_runtime.adapter.dialects import DIALECTS

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
        help=f"Read the adapter in this dialect: one of {', '.join(DIALECTS)}. "
        "By default its names tell.",
    ),
]
"""For commands that read one adapter."""

LaunchArgument = Annotated[list[str], typer.Argument(metavar="FILE|-|-- COMMAND", hidden=True)]
"""For commands that read a launch. The options below say what the launch itself does not."""

EngineOption = Annotated[
    Engine | None, typer.Option(help="The engine, where the launch does not tell it.")
]
VersionOption = Annotated[
    str | None,
    typer.Option(metavar="VERSION", help="The engine's version; the known one by default."),
]
LaunchModelOption = Annotated[
    str | None,
    typer.Option(metavar="DIR|config.json", help="Where the model's config lies here."),
]
LoraOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[NAME=]DIR",
        help="An adapter that is loaded while the server runs, or where the adapter NAME of the "
        "launch lies here. Repeatable.",
    ),
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A variable of the server's environment. Repeatable."),
]
EnvFileOption = Annotated[
    list[str] | None,
    typer.Option("--env-file", metavar="FILE", help="Variables, as NAME=VALUE lines. Repeatable."),
]
GpuMemoryOption = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Memory of each GPU, as `141GiB` or `80GB`."),
]
InheritOption = Annotated[
    bool, typer.Option("--inherit-env", help="Let the server inherit this environment.")
]
