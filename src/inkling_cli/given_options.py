"""Which options a command line gives, for those that are of no use beside one another."""

from collections.abc import Collection, Iterator

import typer

from inkling_runtime.errors import InklingError


def given_options(context: typer.Context) -> Iterator[str]:
    """Yield the options of a command line as they may be spelled, defaults left out."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.param_type_name == "option" and source and source.name == "COMMANDLINE":
            is_off = parameter.secondary_opts and context.params.get(parameter.name) is False
            yield (parameter.secondary_opts if is_off else parameter.opts)[-1]


def require_apart(
    context: typer.Context, chosen: str, others: Collection[str], hint: str | None = None
) -> None:
    """Require that none of the options is given that are of no use beside a chosen one.

    Raises:
        InklingError: one is.
    """
    for name in given_options(context):
        if name in others:
            raise InklingError(
                f"`{chosen}` and `{name}` are both given, expected one of them", hint
            )


def require_alone(
    context: typer.Context, chosen: str, allowed: Collection[str], hint: str | None = None
) -> None:
    """Require that a chosen option is given with none but the allowed ones.

    Raises:
        InklingError: another one is.
    """
    others = [name for name in given_options(context) if name not in (chosen, *allowed)]
    require_apart(context, chosen, others, hint)
