"""`inkling explain`: what a rule checks, why it matters, how to fix what it found."""

from typing import Annotated

import typer

from inkling_cli.checks.catalog import find_rule, iter_rules, nearest_rule
from inkling_cli.exit_codes import ExitCode
from inkling_cli.options import PlainFormatOption
from inkling_cli.output import Output, PlainFormat
from inkling_cli.render.rules import render_rule, render_rule_list, rule_object
from inkling_runtime.errors import InklingError

EXAMPLES = (
    "inkling explain VLM001",
    "inkling explain max-cpu-loras-below-max-loras",
    "inkling explain --output-format json",
)


def explain(
    rule: Annotated[
        str | None, typer.Argument(metavar="CODE|NAME", help="The rule; none lists all rules.")
    ] = None,
    output_format: PlainFormatOption = PlainFormat.FULL,
) -> int:
    """Explain a rule and how to fix what it found."""
    output = Output("explain", output_format)
    if rule is None:
        rules = list(iter_rules())
        output.show(render_rule_list(rules), {"rules": [rule_object(rule) for rule in rules]})
        return ExitCode.CLEAN
    found = find_rule(rule)
    if found is None:
        near = nearest_rule(rule)
        hint = f"did you mean `inkling explain {near.code}` ({near.name})?" if near else None
        raise InklingError(
            f"`{rule}` is no rule's code or name", hint or "`inkling explain` lists all rules"
        )
    output.show(render_rule(found), {"rule": rule_object(found)})
    return ExitCode.CLEAN
