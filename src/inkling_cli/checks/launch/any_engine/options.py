"""Rules over the values of options, whichever engine they are for."""

import difflib
from collections import defaultdict
from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Change, Severity
from inkling_cli.checks.launch.launch import OptionUse
from inkling_cli.checks.launch.options.table import (
    OptionSpec,
    ValueKind,
    option_table,
    parse_number,
)
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage
from inkling_runtime.errors import format_names

_HAVE_THEIR_OWN_RULE = ("--max-lora-rank", "--lora-target-modules")
_MAY_REPEAT = ("--middleware",)
_CONFIG_STAGE = {Engine.VLLM: Stage.ENGINE_CONFIG, Engine.SGLANG: Stage.SERVER_ARGS}
"""Where each engine looks at ranges: its argument parser does not."""


@LAUNCH_RULES.rule("LCH007", "value-not-a-number", Severity.ERROR, stage=Stage.COMMAND_LINE)
def check_value_not_a_number(subject: LaunchSubject) -> Iterator[Defect]:
    """An option that takes a number has something else.

    *What it checks*: the values of all options that the engine reads as whole numbers, as sizes
    like `8k`, or as numbers.

    *Why it matters*: the server refuses to start.

    *How to fix*: give a number.
    """
    for use, spec in _uses(subject):
        if spec.kind in (ValueKind.INTEGER, ValueKind.SIZE, ValueKind.NUMBER):
            for value in use.values:
                if not spec.takes(value):
                    yield Defect(
                        f"`{use.spelled}` is `{value}`, expected {spec.kind.value}",
                        location=use.location,
                    )


@LAUNCH_RULES.rule("LCH013", "value-not-json", Severity.ERROR, stage=Stage.COMMAND_LINE)
def check_value_not_json(subject: LaunchSubject) -> Iterator[Defect]:
    """An option that takes JSON has something else.

    *What it checks*: the values of all options that the engine reads as JSON.

    *Why it matters*: the server refuses to start. In a shell the double quotes of JSON vanish
    unless the whole value stands in single quotes.

    *How to fix*: write JSON, in single quotes: `'{"method": "mtp"}'`.
    """
    for use, spec in _uses(subject):
        is_json = spec.kind in (ValueKind.JSON, ValueKind.JSON_OBJECT)
        for value in use.values if is_json else ():
            if not spec.takes(value):
                yield Defect(
                    f"`{use.spelled}` is `{value}`, expected {spec.kind.value}",
                    f"write JSON in single quotes: `{use.spelled} '{{…}}'`",
                    use.location,
                )


@LAUNCH_RULES.rule("LCH014", "value-below-minimum", Severity.ERROR)
def check_value_below_minimum(subject: LaunchSubject) -> Iterator[Defect]:
    """A number is smaller than the engine takes.

    *What it checks*: the values of all options that have a least value. (`--max-loras` and
    `--max-loras-per-batch` have rules of their own.)

    *Why it matters*: the server refuses to start.

    *How to fix*: give at least the least value.
    """
    for use, spec in _uses(subject):
        for value in use.values if spec.minimum is not None else ():
            number = parse_number(value)
            if number is None or spec.minimum is None or value in spec.special_words:
                continue
            if not number >= spec.minimum:
                yield Defect(
                    f"`{use.spelled}` is {value}, expected at least {spec.minimum:g}",
                    f"write `{use.spelled} {spec.minimum:g}` or more",
                    use.location,
                    stage=_CONFIG_STAGE[subject.engine],
                )


@LAUNCH_RULES.rule("LCH008", "value-not-a-choice", Severity.ERROR, stage=Stage.COMMAND_LINE)
def check_value_not_a_choice(subject: LaunchSubject) -> Iterator[Defect]:
    """An option that takes one of a few values has another.

    *What it checks*: the values of the dtype, LoRA and mixture-of-experts options that have a fixed
    list. (`--max-lora-rank` and `--lora-target-modules` have rules of their own.)

    *Why it matters*: the server refuses to start.

    *How to fix*: take a value from the list.
    """
    for use, spec in _uses(subject):
        if not spec.choices or spec.name in _HAVE_THEIR_OWN_RULE:
            continue
        for value in use.values:
            if not spec.is_choice(value):
                near = difflib.get_close_matches(value.lower(), spec.choices, n=1)
                yield Defect(
                    f"`{use.spelled}` is `{value}`, expected one of "
                    + format_names(spec.choices, limit=6),
                    f"did you mean `{near[0]}`?" if near else None,
                    use.location,
                )


@LAUNCH_RULES.rule("LCH009", "repeated-option", Severity.WARNING)
def check_repeated_option(subject: LaunchSubject) -> Iterator[Defect]:
    """An option stands twice; only the last use counts.

    *What it checks*: options that are given more than once in the same command or file.

    *Why it matters*: the engines keep the last use and drop the others without a word, lists
    included: of `--lora-modules a=/a --lora-modules b=/b` only `b` is loaded.

    *How to fix*: give each option once, with all of its values: `--lora-modules a=/a b=/b`.
    """
    uses: dict[tuple[str, str | None], list[OptionUse]] = defaultdict(list)
    for use in subject.launch.uses:
        uses[use.name, use.location.file].append(use)
    for (name, _), same in uses.items():
        if len(same) < 2 or name in _MAY_REPEAT:
            continue
        dropped, kept = _shown(same[-2]), _shown(same[-1])
        together = " ".join(dict.fromkeys(value for use in same for value in use.values))
        is_list = name in (subject.engine.adapters_option, "--lora-target-modules")
        yield Defect(
            f"`{name}` is given {len(same)} times: `{kept}` counts, `{dropped}` is dropped",
            f"write `{name} {together}`" if is_list else "keep the one that is meant",
            same[-1].location,
            change=None if is_list else Change(once=(name,)),
        )


def _uses(subject: LaunchSubject) -> Iterator[tuple[OptionUse, OptionSpec]]:
    """Yield the uses whose values are known, with their options."""
    table = option_table(subject.engine, subject.version)
    for use in subject.launch.uses:
        if "." not in use.name and not any(map(is_unknown, use.values)):
            yield use, table.spec(use.name)


def _shown(use: OptionUse) -> str:
    return " ".join((use.spelled, *use.values))
