"""The command line: the list of commands, and how whatever happens becomes an exit code.

To add a command, write `commands/<name>.py` with a function and `EXAMPLES`, and add its line to
`COMMANDS`. Importing this module must stay cheap: no torch, no numpy, however indirectly; of the
commands only the one that was asked for is imported.
"""

import errno
import gc
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core

from inkling_cli.exit_codes import ExitCode
from inkling_cli.output import Output, open_streams, silence
from inkling_runtime import __version__
from inkling_runtime.errors import InklingError

COMMANDS = {
    "inspect": "inspect:inspect",
    "check-config": "check_config:check_config",
    "plan": "plan:plan",
    "check-adapter": "check_adapter:check",
    "convert-adapter": "convert_adapter:convert_adapter",
    "resize": "resize:resize",
    "merge": "merge:merge",
    "verify": "verify:verify",
    "diff": "diff:diff",
    "generate": "generate:generate",
    "demo": "demo:demo",
    "explain": "explain:explain",
}
"""Each command → its module in `commands/` and its function, in the order of `--help`."""


def load_command(name: str) -> tuple[Callable[..., int], Sequence[str]]:
    """Return a command's function and examples, importing its module."""
    module_name, _, function = COMMANDS[name].partition(":")
    module = import_module(f"inkling_cli.commands.{module_name}")
    return getattr(module, function), module.EXAMPLES


class WithWords(typer.core.TyperCommand):
    """A command that keeps what stands after `--` apart: `context.obj`, the words as a tuple."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what stands before the first `--`."""
        before, dashes, words = args, "", []
        if "--" in args:
            index = args.index("--")
            before, dashes, words = args[:index], args[index], args[index + 1 :]
        if dashes and not words:
            raise InklingError("nothing stands after `--`, expected options of an engine")
        ctx.obj = tuple(words)
        return list(super().parse_args(ctx, before))


_WITH_WORDS = ("check-adapter",)
"""Commands that take options of an engine after `--`, beside arguments of their own."""


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        Output("inkling").show(f"inkling {__version__}", {})
        raise typer.Exit(ExitCode.CLEAN)


def inkling(
    context: typer.Context,
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """A toolkit for LoRA adapters of the mixture-of-experts model Inkling."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(ExitCode.NOT_DONE)


def format_examples(examples: Sequence[str]) -> str:
    """Return examples for the end of a `--help`, kept as they are."""
    return "\n".join(("\b", "Examples:", *(f"  {example}" for example in examples)))


def build_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Return the application with these commands, all by default."""
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    commands = {name: load_command(name) for name in names}
    epilog = format_examples([examples[0] for _, examples in commands.values()])
    app.callback(invoke_without_command=True, epilog=epilog)(inkling)
    for name, (function, examples) in commands.items():
        kind = WithWords if name in _WITH_WORDS else typer.core.TyperCommand
        app.command(name, cls=kind, epilog=format_examples(examples))(function)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; the console's entry point."""
    open_streams()
    try:
        is_process = arguments is None
        code = _run(sys.argv[1:] if arguments is None else arguments, is_process=is_process)
        sys.stdout.flush()
    except InklingError as error:
        Output("inkling").show_inkling_error(error)
        return ExitCode.NOT_DONE
    except typer.TyperException as error:
        _show_usage_error(error)
        return ExitCode.NOT_DONE
    except (KeyboardInterrupt, typer.Abort):
        return ExitCode.INTERRUPTED
    except (BrokenPipeError, SystemExit):
        silence(sys.stdout)
        return ExitCode.CLEAN
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            silence(sys.stdout)
            Output("inkling").show_error("there is no room for the answer: the device is full")
        else:
            _show_bug(error)
        return ExitCode.NOT_DONE
    return code


def _run(arguments: Sequence[str], *, is_process: bool) -> int:
    asked = next((word for word in arguments if not word.startswith("-")), "")
    needs_none = list(arguments) == ["--version"]
    with _imports_kept(is_process=is_process):
        app = build_app([asked] if asked in COMMANDS else [] if needs_none else COMMANDS)
        command = typer.main.get_command(app)
    result = command.main(list(arguments), prog_name="inkling", standalone_mode=False)
    return int(result or ExitCode.CLEAN)


@contextmanager
def _imports_kept(*, is_process: bool) -> Iterator[None]:
    """Let a process's garbage collector pass over what its imports make: a tenth of a run."""
    if not is_process:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _show_usage_error(error: typer.TyperException) -> None:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "inkling"
    hint = f"`{path} --help` says what it takes"
    if path in ("inkling check-config", "inkling plan") and hasattr(error, "option_name"):
        hint = f"the words of a launch go after `--`: `{path} -- vllm serve …`"
    is_unknown_option = hasattr(error, "possibilities")
    message = (error.message if is_unknown_option else error.format_message()).rstrip(".")
    message = re.sub(r"'([^' ]*)'", r"`\1`", message.replace(": Value error,", ":"))
    Output("inkling").show_error(message[:1].lower() + message[1:], hint)


def _show_bug(error: Exception) -> None:
    if os.environ.get("INKLING_DEBUG") == "1":
        traceback.print_exception(error)
    Output("inkling").show_error(
        f"a bug in inkling: {type(error).__name__}: {error}",
        "run it again with `INKLING_DEBUG=1` and report what it prints",
    )


if __name__ == "__main__":
    sys.exit(main())
