"""`inkling demo`: a small trained model with adapters, to try everything on."""

import shutil
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from inkling_cli.exit_codes import ExitCode
from inkling_cli.options import PlainFormatOption
from inkling_cli.output import Output, PlainFormat
from inkling_cli.render.demo import demo_commands, render_demo
from inkling_runtime.adapter.new_folder import new_folder, require_new

EXAMPLES = ("inkling demo DIR", "inkling demo DIR --overwrite")


def demo(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace DIR if it exists.")
    ] = False,
    output_format: PlainFormatOption = PlainFormat.FULL,
) -> int:
    """Write a small model and adapters to try things on.

    The base model counts up; one adapter makes it count down, the other count by twos. Beside
    them lie a launch file with typical mistakes and a file of prompts. The commands to try are
    printed.
    """
    require_new(folder, overwrite, marker="serve.sh")
    with as_file(files("inkling_cli") / "demo_data") as data, new_folder(folder, overwrite) as new:
        shutil.copytree(data, new, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__*"))
    result = {"path": str(folder), "commands": demo_commands()}
    Output("demo", output_format).show(render_demo(str(folder)), result)
    return ExitCode.CLEAN
