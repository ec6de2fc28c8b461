"""Rules over the environment of an SGLang server.

The trap: SGLang does not stop at a value that it cannot read. It says so once and takes the
default, so a switch set to `on` or `enabled` does nothing.
"""

import difflib
import math
from collections.abc import Iterator

from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.launch.advice import launch_defect
from inkling_cli.checks.launch.launch import Variable, parse_integer
from inkling_cli.checks.launch.options.table import parse_number
from inkling_cli.checks.launch.parse.arguments import is_unknown
from inkling_cli.checks.launch.registry import LAUNCH_RULES
from inkling_cli.checks.launch.sglang.variable_names import BOOLEANS, INTEGERS, NUMBERS, OTHERS
from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Defect
from inkling_cli.checks.stage import Stage

_PREFIX = "SGLANG_"
_TRUE, _FALSE = ("true", "1", "yes", "y"), ("false", "0", "no", "n")
_EFFORT = "SGLANG_INKLING_DEFAULT_REASONING_EFFORT"
_MAX_EFFORT = 0.99
_VLLM_ONLY = "INKLING_MULTIMEM_AR"
_BOOLEANS, _INTEGERS, _NUMBERS = map(frozenset, map(str.split, (BOOLEANS, INTEGERS, NUMBERS)))
_KNOWN = _BOOLEANS | _INTEGERS | _NUMBERS | frozenset(OTHERS.split())


def is_true(value: str | None) -> bool:
    """Return whether SGLang reads a variable's value as on."""
    return value is not None and value.lower() in _TRUE


@LAUNCH_RULES.rule("SGL701", "variable-value-ignored", Severity.WARNING, engine=Engine.SGLANG)
def check_variable_value_ignored(subject: LaunchSubject) -> Iterator[Defect]:
    """A variable's value is none that SGLang can read.

    *What it checks*: `SGLANG_…` variables that are on or off (`1`, `true`, `yes`, `y` and their
    opposites), whole numbers, or numbers.

    *Why it matters*: SGLang warns and takes the variable's default.

    *How to fix*: write `1` or `0`, or a number.
    """
    for variable, name in _variables(subject):
        expected = _expected(name, variable.value)
        if expected is not None:
            yield Defect(
                f"`{variable.name}` is `{variable.value}`, expected {expected}: SGLang takes its "
                "default",
                f"set `{variable.name}` to {expected}, or leave it out",
                variable.location,
            )


@LAUNCH_RULES.rule("SGL702", "variable-misspelt", Severity.WARNING, engine=Engine.SGLANG)
def check_variable_misspelt(subject: LaunchSubject) -> Iterator[Defect]:
    """A variable that SGLang does not have looks like one that it has.

    *What it checks*: every `SGLANG_…` variable against those of the engine's known version.

    *Why it matters*: SGLang ignores a variable that it does not know, without a word.

    *How to fix*: write the variable as SGLang spells it.
    """
    for variable, name in _variables(subject):
        near = [] if name in _KNOWN else difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.85)
        if near:
            right = _PREFIX + near[0]
            yield Defect(
                f"`{variable.name}` is not a variable of SGLang {subject.described_version}, "
                f"the nearest is `{right}`",
                f"write `{right}={variable.value}` if that is meant",
                variable.location,
            )


@LAUNCH_RULES.rule("SGL703", "default-effort-out-of-range", Severity.ERROR, engine=Engine.SGLANG)
def check_default_effort_out_of_range(subject: LaunchSubject) -> Iterator[Defect]:
    """The default reasoning effort is no number from 0 to 0.99.

    *What it checks*: `SGLANG_INKLING_DEFAULT_REASONING_EFFORT`; words like `high` are for requests
    only.

    *Why it matters*: SGLang loads the model and then stops, when it sets up its chat interface.

    *How to fix*: give a number, for example 0.9, which is also the default.
    """
    value = subject.launch.variable(_EFFORT)
    if not value or is_unknown(value) or not subject.is_inkling:
        return
    number = parse_number(value)
    if number is None or not math.isfinite(number) or not 0 <= number <= _MAX_EFFORT:
        yield launch_defect(
            subject.launch,
            f"`{_EFFORT}` is `{value}`, expected a number from 0 to {_MAX_EFFORT}",
            subject.at(_EFFORT),
            variables={_EFFORT: "0.9"},
            stage=Stage.STARTUP,
        )


@LAUNCH_RULES.rule("SGL704", "variable-of-vllm", Severity.INFO, engine=Engine.SGLANG)
def check_variable_of_vllm(subject: LaunchSubject) -> Iterator[Defect]:
    """`INKLING_MULTIMEM_AR` is set, which only vLLM reads.

    *What it checks*: whether the launch of an SGLang server sets it.

    *Why it matters*: it has no effect; SGLang's own switch is `SGLANG_OPT_USE_INKLING_CUSTOM_AR`,
    and LoRA needs none.

    *How to fix*: leave it out.
    """
    if subject.launch.variable(_VLLM_ONLY) is not None:
        yield Defect(
            f"`{_VLLM_ONLY}` is set, which only vLLM reads",
            f"leave `{_VLLM_ONLY}` out",
            subject.at(_VLLM_ONLY),
        )


def _variables(subject: LaunchSubject) -> Iterator[tuple[Variable, str]]:
    """Yield the launch's SGLang variables whose values are known, with their names' last part."""
    for variable in subject.launch.variables.values():
        if variable.name.startswith(_PREFIX) and not is_unknown(variable.value):
            yield variable, variable.name.removeprefix(_PREFIX)


def _expected(name: str, value: str) -> str | None:
    """Return what SGLang expects in place of a variable's value; None where it can read it."""
    if name in _BOOLEANS and value.lower() not in _TRUE + _FALSE:
        return "`1` or `0`"
    if name in _INTEGERS and parse_integer(value) is None:
        return "a whole number"
    if name in _NUMBERS and parse_number(value) is None:
        return "a number"
    return None
